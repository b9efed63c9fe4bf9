"""All logs of one broker over its data folders (Kafka's LogManager).

Timers belong to `node`, which calls the plain methods here. A folder whose disk fails goes
offline with its logs only; the others go on.
"""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Callable, Mapping
from uuid import UUID

from headwater.clock import Clock
from headwater.config.keys import broker_key
from headwater.entropy import Entropy
from headwater.errors import ErrorCode, KafkaError, UsageError
from headwater.ports.files import Files
from headwater_broker.log.checkpoint_files import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    CheckpointError,
    Offsets,
    encode_partition_metadata,
)
from headwater_broker.log.deferred_deletion import DeferredDeletion
from headwater_broker.log.duplicate_logs import DuplicateLogs
from headwater_broker.log.flush_meter import FlushMeter
from headwater_broker.log.future_logs import (
    DELETE_SUFFIX,
    FutureLogs,
    FutureParts,
    parse_future_name,
    recover_futures,
)
from headwater_broker.log.index_flusher import IndexFlusher
from headwater_broker.log.log_config import LogConfig, LogConfigs
from headwater_broker.log.log_context import LogContext, Offload, RenamedFiles
from headwater_broker.log.log_creation import Key, LogCreation
from headwater_broker.log.log_dir import (
    MARK_VERSION,
    NO_BROKER_EPOCH,
    DataDirectory,
    is_disk_fault,
    least_used,
    parse_folder_name,
    starting,
)
from headwater_broker.log.log_loader import LoadedLog, LoadRequest, LogLoader
from headwater_broker.log.stray_logs import StrayLogs
from headwater_broker.log.unified_log import UnifiedLog
from headwater_broker.runtime.histogram import Histogram

logger = logging.getLogger(__name__)


class LogManager:
    """All logs of one broker."""

    def __init__(
        self,
        files: Files,
        dirs: list[str],
        *,
        broker_id: int,
        cluster_id: str,
        clock: Clock,
        entropy: Entropy,
        broker_properties: Mapping[str, str],
        offload: Offload,
        high_watermarks: Callable[[UnifiedLog], int] | None = None,
        on_offline: Callable[[str, list[UnifiedLog]], None] | None = None,
    ) -> None:
        """`high_watermarks` gives a log's HW (default: its end); `on_offline(folder, logs)` is
        called when a disk failed, perhaps from inside an append."""
        if not dirs or len(set(dirs)) != len(dirs):
            raise UsageError(f"log.dirs: {dirs!r} must name at least one folder, each once")
        self._files = files
        self._clock = clock
        self.set_broker_properties(broker_properties)
        self.high_watermarks = high_watermarks or (lambda log: log.log_end_offset)
        self.on_offline = on_offline or (lambda folder, logs: None)
        self.logs: dict[Key, UnifiedLog] = {}
        self._duplicates = DuplicateLogs(self.logs)
        self._deferred_deletion = DeferredDeletion(files, clock, offload)
        self._failures: deque[tuple[str, OSError]] = deque()
        """Appended to by jobs off the loop, drained on it."""
        self._index_flusher = IndexFlusher()
        self._flush_meter = FlushMeter(clock)
        self._is_truncated = False
        self._entropy = entropy
        self._strays = StrayLogs(files, entropy, self._deferred_deletion.add)
        self._context = LogContext(
            files, clock, entropy, offload, self._deferred_deletion.add, self._failed,
            self._failures.append,
            self._index_flusher,
            self._flush_meter,
            self._note_truncation,
        )  # fmt: skip
        self._directories = [
            DataDirectory(files, path, broker_id, cluster_id, entropy) for path in dirs
        ]
        if not any(directory.is_online for directory in self._directories):
            raise UsageError(f"log.dirs: none of {dirs} can be used; see the errors above")
        self.futures = FutureLogs(
            FutureParts(
                files, entropy, self._directories, self.logs, self._future_request, self._adopted,
                self._deferred_deletion.add, self._failed,
            )
        )  # fmt: skip

    @property
    def directory_ids(self) -> list[UUID]:
        """Identities of the folders that are online."""
        return [d.directory_id for d in self._directories if d.is_online]

    @property
    def flush_times(self) -> Histogram:
        """How often logs were fsynced, and how long each took."""
        return self._flush_meter.times

    @property
    def offline_directories(self) -> list[str]:
        """Folders that failed, at start or since."""
        return [d.path for d in self._directories if not d.is_online]

    @property
    def clean_broker_epoch(self) -> int:
        """The broker epoch of the last clean stop: the lowest of all folders; -1 when any was
        stopped uncleanly, or has a log that lost its end all the same (KIP-966)."""
        return min((d.clean_epoch for d in self._directories if d.is_online), default=-1)

    def log_config(self, overrides: Mapping[str, str]) -> LogConfig:
        """A topic's settings over this broker's defaults."""
        return self._configs.of(overrides)

    def by_folder(self) -> list[tuple[str, bool, list[UnifiedLog]]]:
        """(folder, is it online, its logs and future logs) of every data folder, as configured."""
        rows: dict[str, list[UnifiedLog]] = {d.path: [] for d in self._directories}
        for log in (*self.logs.values(), *self.futures.logs.values()):
            rows[self._directory_of(log).path].append(log)
        return [(d.path, d.is_online, rows[d.path]) for d in self._directories]

    def set_broker_properties(self, properties: Mapping[str, str]) -> None:
        """The defaults of topics from now on (`log_config` gives each topic's settings), and when
        silent producers expire."""
        self._configs = LogConfigs(properties)
        key = broker_key("producer.id.expiration.ms")
        self._producer_expiration_ms = key.integer_in(properties)

    # -- load

    def load_all(
        self, topic_config: Callable[[str], Mapping[str, str]] | None = None
    ) -> list[UnifiedLog]:
        """Open every log on disk, recovering what an unclean stop left. Call once, at start.

        Topics are opened with `topic_config(topic)` until the controller announces a config.
        Raises UsageError when there are too few descriptors for all of them.
        """
        futures = self._recover_futures()
        for directory in self._online():
            with starting(directory, self._failed):
                self._load_directory(directory, topic_config or (lambda topic: {}))
        for directory in self._online():
            with starting(directory, self._failed):
                self._load_futures(directory, futures.get(directory.path, []))
                directory.forget_clean_stop()
        return list(self.logs.values())

    def _online(self) -> list[DataDirectory]:
        return [d for d in self._directories if d.is_online]

    def _recover_futures(self) -> dict[str, list[str]]:
        names: dict[str, list[str]] = {}
        for directory in self._online():
            with starting(directory, self._failed):
                names[directory.path] = directory.folder_names()
        return recover_futures(
            self._files, names, all_online=not self.offline_directories,
            set_aside=self._strays.set_aside, failed=self._failed,
        )  # fmt: skip

    def _load_futures(self, directory: DataDirectory, names: list[str]) -> None:
        for name in names:
            parsed, topic_id = parse_future_name(name), self._identity(directory, name)
            if parsed is None or topic_id is None or parsed[0] not in self.logs:
                continue  # its log's folder has just failed
            request = self._future_request(directory, parsed[0], f"{directory.path}/{name}")
            loaded = LogLoader(self._files, request).load()
            future = self._made(directory, parsed[0], topic_id, request, loaded)
            if not directory.is_clean:  # it may have a hole
                try:
                    future.truncate_to(request.recovery_point)
                except KafkaError as e:
                    future.delete()
                    self._strays.set_aside(directory.path, name, str(e))
                    continue
            self.futures.resume(parsed[0], future)

    def _identity(self, directory: DataDirectory, name: str) -> UUID | None:
        """The topic id of a log's folder; one that does not tell is set aside."""
        try:
            return directory.topic_id(name)
        except CheckpointError as e:
            self._strays.set_aside(directory.path, name, str(e))
            return None

    def _load_directory(
        self, directory: DataDirectory, topic_config: Callable[[str], Mapping[str, str]]
    ) -> None:
        for name in directory.folder_names():
            key = parse_folder_name(name)
            self._strays.found(directory.path, name)
            if name.endswith(DELETE_SUFFIX):
                self._files.remove(f"{directory.path}/{name}")
            if key is None:
                continue
            topic_id = self._identity(directory, name)
            if topic_id is None:
                continue
            config = self.log_config(topic_config(key[0]))
            loser = self._duplicates.add(self._open(directory, key, topic_id, config))
            if loser is not None:
                self._set_log_aside(loser, "another data folder's copy knows more")
            if not directory.is_online:
                return

    def _open(
        self, directory: DataDirectory, key: Key, topic_id: UUID, config: LogConfig
    ) -> UnifiedLog:
        folder = f"{directory.path}/{key[0]}-{key[1]}"
        request = self._request(directory, key, config, folder)
        loaded = LogLoader(self._files, request).load()
        if loaded.is_cut:
            directory.clean_epoch = NO_BROKER_EPOCH
        return self._made(directory, key, topic_id, request, loaded)

    def _future_request(self, directory: DataDirectory, key: Key, folder: str) -> LoadRequest:
        return self._request(directory, key, self.logs[key].config, folder)

    def _request(
        self, directory: DataDirectory, key: Key, config: LogConfig, folder: str
    ) -> LoadRequest:
        return LoadRequest(
            folder,
            config,
            directory.recovery_points.get(key, 0),
            directory.log_starts.get(key, 0),
            directory.is_clean,
            self._clock.now_ms(),
        )

    def _made(
        self,
        directory: DataDirectory,
        key: Key,
        topic_id: UUID,
        request: LoadRequest,
        loaded: LoadedLog,
    ) -> UnifiedLog:
        log = UnifiedLog(
            self._context, key[0], topic_id, key[1], request.folder, directory.directory_id,
            request.config, loaded,
        )  # fmt: skip
        log.first_dirty_offset = min(directory.first_dirty.get(key, 0), log.log_end_offset)
        return log

    def _set_log_aside(self, log: UnifiedLog, reason: str) -> None:
        log.delete()
        directory = self._directory_of(log)
        directory.forget((log.topic, log.partition))
        try:
            self._strays.set_aside(directory.path, f"{log.topic}-{log.partition}", reason)
        except OSError as e:  # a new log of that name in this folder would take over its files
            self._failed(log.path, e)

    # -- one log

    def get(self, topic: str, partition: int) -> UnifiedLog | None:
        """The log, or None."""
        return self.logs.get((topic, partition))

    def find(self, topic: str, topic_id: UUID, partition: int) -> UnifiedLog | None:
        """The log of this topic id, also while another topic's log has its name; or None."""
        return self._duplicates.find((topic, partition), topic_id)

    def get_or_create(
        self, topic: str, topic_id: UUID, partition: int, config: LogConfig, *, is_new: bool
    ) -> UnifiedLog:
        """`find_or_plan`, and the creation at once."""
        found = self.find_or_plan(topic, topic_id, partition, config, is_new=is_new)
        if isinstance(found, LogCreation):
            found.run()
            return self.adopt(found)
        return found

    def find_or_plan(
        self, topic: str, topic_id: UUID, partition: int, config: LogConfig, *, is_new: bool
    ) -> UnifiedLog | LogCreation:
        """The replica's log, or how to make it: `run` that anywhere, then `adopt` it.

        The name is this topic's: a log of another topic id is set aside, never reused.

        A replica that is not new may live in a folder that is offline now: then
        KAFKA_STORAGE_ERROR, rather than an empty log that could win an election.
        """
        key = (topic, partition)
        for other in self._duplicates.settle(key, topic_id):
            self.futures.drop_of(other)
            self._set_log_aside(other, f"topic id {other.topic_id}, wanted {topic_id}")
        log = self.logs.get(key)
        if log is not None:
            log.update_config(config)
            log.forget_untiered()
            return log
        if not is_new and self.offline_directories:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{topic}-{partition}: not found, and {self.offline_directories} are offline",
            )
        directory = self.futures.preferred(key) or least_used(
            self._online(), (log.path for log in self.logs.values())
        )
        directory.forget(key)
        if directory.has_checkpointed_start(key):
            self.checkpoint_log_starts()
        metadata = encode_partition_metadata(topic_id)
        request = self._request(directory, key, config, f"{directory.path}/{topic}-{partition}")
        return LogCreation(self._files, directory, key, topic_id, metadata, request)

    def adopt(self, creation: LogCreation) -> UnifiedLog:
        """The log whose files `creation` has made. Raises KAFKA_STORAGE_ERROR when it could not."""
        log = self.logs[creation.key] = self._adopted(creation)
        return log

    def _adopted(self, creation: LogCreation) -> UnifiedLog:
        if creation.loaded is None or not creation.directory.is_online:  # perhaps only just now
            error = creation.error or OSError("its data folder went offline")
            path = creation.request.folder
            self._failed(path, error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path}: {error}") from error
        return self._made(creation.directory, creation.key, creation.topic_id, creation.request,
                          creation.loaded)  # fmt: skip

    def _directory_of(self, log: UnifiedLog) -> DataDirectory:
        return next(d for d in self._directories if log.path.startswith(d.path + "/"))

    def delete(self, log: UnifiedLog) -> None:
        """Rename the folder to `-delete` at once, or raise OSError; the files go off the loop."""
        self.futures.drop_of(log)
        self._duplicates.remove(log)
        log.delete()
        self._directory_of(log).forget((log.topic, log.partition))
        target = f"{log.path}.{self._entropy.uuid().hex}{DELETE_SUFFIX}"
        try:
            self._files.rename(log.path, target)
        except OSError as e:
            self._failed(log.path, e)
            raise
        files = tuple(segment.file for segment in log.segments)
        self._deferred_deletion.add(RenamedFiles((target,), files, log.config.file_delete_delay_ms))

    def delete_replica(self, topic: str, topic_id: UUID, partition: int) -> None:
        """`delete` of the log, if it is here, and of what was set aside of that topic.

        Raises OSError as long as data may be on a disk that is away, be it an older copy of what
        was found: it would be back with the disk, and nobody would ask again."""
        if (log := self.find(topic, topic_id, partition)) is not None:
            self.delete(log)
        self._strays.delete((topic, partition), topic_id, self.log_config({}).file_delete_delay_ms)
        if offline := self.offline_directories:
            raise OSError(f"there may be more of it: {offline} are offline")

    def high_watermark_checkpoint(self, log: UnifiedLog) -> int:
        """The high watermark as last written in the log's folder; 0 when unknown."""
        return self._directory_of(log).high_watermarks.get((log.topic, log.partition), 0)

    # -- ticks

    def retain_all(self, tiered_end: Callable[[UnifiedLog], int | None] | None = None) -> int:
        """Retention of every log; one that fails does not stop the others."""
        now_ms, count = self._clock.now_ms(), 0
        for log in list(self.logs.values()):
            end = tiered_end(log) if tiered_end is not None else None
            try:
                count += log.retain(now_ms, end, high_watermark=self.high_watermarks(log))
            except KafkaError as e:
                logger.error("%s: retention: %s", log.path, e)
        return count

    def expire_producers(self) -> None:
        """Forget producers of any log that were silent for producer.id.expiration.ms."""
        now_ms = self._clock.now_ms()
        for log in self.logs.values():
            log.producers.expire(now_ms, self._producer_expiration_ms)

    def flush_due(self) -> None:
        """flush.ms of every log; the fsyncs run off the loop."""
        now_ms = self._clock.now_ms()
        for log in self.logs.values():
            log.apply_finished_flushes()
            log.flush_later(now_ms)

    def maintain_files(self) -> None:
        """Each second, whatever the intervals that an operator may set: act on disk errors that
        offloaded jobs met, write recovery points that a truncation has lowered, have checkpoints
        forget logs that are gone, unlink what is due.

        After a truncation, what is appended in the place of what was cut is not durable, and must
        be checked after a crash.
        """
        while self._failures:
            self._failed(*self._failures.popleft())
        if self._is_truncated:
            self._is_truncated = False
            self.checkpoint_recovery_points()
        if any(directory.has_forgotten for directory in self._online()):
            self.checkpoint_all()
        self._index_flusher.flush()
        self.remove_due_files()

    def _note_truncation(self) -> None:
        self._is_truncated = True

    def remove_due_files(self) -> None:
        """Unlink, off the loop, what was renamed long enough ago."""
        self._deferred_deletion.remove_due()

    def checkpoint_all(self) -> None:
        """Write all four; none tells afterwards of logs that are gone."""
        for directory in self._online():
            directory.has_forgotten = False
        self.checkpoint_recovery_points()
        self.checkpoint_log_starts()
        self.checkpoint_high_watermarks()
        self.checkpoint_cleaned()

    def checkpoint_recovery_points(self) -> None:
        """Write recovery-point-offset-checkpoint per folder."""
        for log in self.logs.values():
            log.apply_finished_flushes()
        self._checkpoint(RECOVERY_POINTS, lambda log: log.recovery_point)

    def checkpoint_log_starts(self) -> None:
        """Write log-start-offset-checkpoint: where it differs from the first segment's base."""
        self._checkpoint(
            LOG_STARTS,
            lambda log: (
                log.log_start_offset
                if log.config.remote_storage or log.log_start_offset != log.bases[0]
                else None
            ),
        )

    def checkpoint_high_watermarks(self) -> None:
        """Write replication-offset-checkpoint per folder."""
        self._checkpoint(HIGH_WATERMARKS, self.high_watermarks)

    def checkpoint_cleaned(self) -> None:
        """Write cleaner-offset-checkpoint: how far each compacted log is clean."""
        self._checkpoint(CLEANER_OFFSETS, lambda log: log.first_dirty_offset or None)

    def _checkpoint(self, name: str, value: Callable[[UnifiedLog], int | None]) -> None:
        for directory in self._online():
            offsets: Offsets = {}
            for log in (*self._duplicates, *self.futures.logs.values()):
                offset = value(log)
                if offset is not None and log.directory_id == directory.directory_id:
                    offsets[log.topic, log.partition] = offset
            try:
                directory.checkpoint(name, offsets)
            except OSError as e:
                self._failed(directory.path + "/", e)

    # -- end

    def close(self, broker_epoch: int = -1) -> None:
        """A clean stop: every log closed and durable, checkpoints, then the mark. Blocks."""
        for log in (*self._duplicates, *self.futures.logs.values()):
            try:
                log.close()
            except (OSError, KafkaError) as e:
                logger.error("%s: not closed cleanly: %s", log.path, e)
                self._failed(log.path, OSError(str(e)))  # whatever it was: no mark there
        self.checkpoint_all()
        self._deferred_deletion.remove_new()
        mark = json.dumps({"version": MARK_VERSION, "brokerEpoch": broker_epoch}).encode()
        for directory in self._directories:
            directory.close(mark)

    def _failed(self, path: str, error: OSError) -> None:
        """Take the folder that holds `path` offline, with its logs (KIP-112)."""
        if not is_disk_fault(path, error):
            return
        directory = next(d for d in self._directories if path.startswith(d.path + "/"))
        if not directory.is_online:
            return
        directory.is_online = False
        logger.error("data folder %s goes offline: %s (%s)", directory.path, error, path)
        lost = [log for log in self._duplicates if log.path.startswith(directory.path + "/")]
        for log in lost:
            log.delete()
            self._duplicates.remove(log)
        self.futures.directory_failed(directory.path, [(log.topic, log.partition) for log in lost])
        self.on_offline(directory.path, lost)
