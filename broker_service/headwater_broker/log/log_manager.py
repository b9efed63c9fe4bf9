"""All logs of one broker over its data folders, log.dirs (Kafka's LogManager).

It has no timers: `app.lifecycle` calls its methods periodically. A folder whose disk fails goes
offline together with its logs; the others stay in use.
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
    FutureLogContext,
    FutureLogs,
    parse_future_name,
    recover_futures,
)
from headwater_broker.log.index_flusher import IndexFlusher
from headwater_broker.log.log_config import LogConfig, LogConfigs
from headwater_broker.log.log_context import LogContext, Offload, RenamedFiles
from headwater_broker.log.log_creation import Key, LogCreation
from headwater_broker.log.log_dir import (
    MARK_VERSION,
    DataDirectory,
    is_disk_fault,
    least_used,
    opening_logs,
    parse_folder_name,
)
from headwater_broker.log.log_loader import LoadRequest
from headwater_broker.log.log_opening import LogOpener
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
    ) -> None:
        """`high_watermarks` returns a log's high watermark (default: its end offset)."""
        if not dirs or len(set(dirs)) != len(dirs):
            raise UsageError(f"log.dirs: {dirs!r} must name at least one folder, each once")
        self._files = files
        self._clock = clock
        self.set_broker_properties(broker_properties)
        self.high_watermarks = high_watermarks or (lambda log: log.log_end_offset)
        self.on_offline: list[Callable[[str, list[UnifiedLog]], None]] = []
        """Listeners (folder, logs), called when a disk failed, perhaps from inside an append."""
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
        self._opener = LogOpener(files, clock, self._context)
        self._directories = [
            DataDirectory(files, path, broker_id, cluster_id, entropy) for path in dirs
        ]
        if not any(directory.is_online for directory in self._directories):
            raise UsageError(f"log.dirs: none of {dirs} can be used; see the errors above")
        self.futures = FutureLogs(
            FutureLogContext(
                files, entropy, self._directories, self.logs, self._future_request, self._adopted,
                self._deferred_deletion.add, self._failed,
            )
        )  # fmt: skip

    @property
    def directory_ids(self) -> list[UUID]:
        """The directory ids of the data folders that are online."""
        return [d.directory_id for d in self._directories if d.is_online]

    @property
    def flush_times(self) -> Histogram:
        """How often logs were fsynced, and how long each took."""
        return self._flush_meter.times

    @property
    def offline_directories(self) -> list[str]:
        """Data folders that failed, at the start or since."""
        return [d.path for d in self._directories if not d.is_online]

    @property
    def clean_broker_epoch(self) -> int:
        """The broker epoch of the last clean shutdown: the lowest of all data folders (KIP-966).

        -1 when any of them was not shut down cleanly, or has a log that lost its end all the same.
        """
        return min((d.clean_epoch for d in self._directories if d.is_online), default=-1)

    def log_config(self, overrides: Mapping[str, str]) -> LogConfig:
        """A topic's settings: its overrides over this broker's defaults."""
        return self._configs.of(overrides)

    def by_folder(self) -> list[tuple[str, bool, list[UnifiedLog]]]:
        """(data folder, is it online, its logs and future logs), in the order of log.dirs."""
        rows: dict[str, list[UnifiedLog]] = {d.path: [] for d in self._directories}
        for log in (*self.logs.values(), *self.futures.logs.values()):
            rows[self._directory_of(log).path].append(log)
        return [(d.path, d.is_online, rows[d.path]) for d in self._directories]

    def set_broker_properties(self, properties: Mapping[str, str]) -> None:
        """Set the defaults of topics (`log_config` applies them) and producer.id.expiration.ms."""
        self._configs = LogConfigs(properties)
        key = broker_key("producer.id.expiration.ms")
        self._producer_expiration_ms = key.integer_in(properties)

    # -- load

    def load_all(
        self, topic_config: Callable[[str], Mapping[str, str]] | None = None
    ) -> list[UnifiedLog]:
        """Open every log on disk, and recover it after an unclean shutdown. Call once, at start.

        `topic_config(topic)` returns the topic's overrides, until the controller announces them.
        Raises UsageError when the process may not open enough files for all logs.
        """
        futures = self._recover_futures()
        for directory in self._online():
            with opening_logs(directory, self._failed):
                self._load_directory(directory, topic_config or (lambda topic: {}))
        for directory in self._online():
            with opening_logs(directory, self._failed):
                self._load_futures(directory, futures.get(directory.path, []))
                directory.forget_clean_stop()
        return list(self.logs.values())

    def _online(self) -> list[DataDirectory]:
        return [d for d in self._directories if d.is_online]

    def _recover_futures(self) -> dict[str, list[str]]:
        names: dict[str, list[str]] = {}
        for directory in self._online():
            with opening_logs(directory, self._failed):
                names[directory.path] = directory.folder_names()
        return recover_futures(
            self._files, names, all_online=not self.offline_directories,
            set_aside=self._strays.set_aside, failed=self._failed,
        )  # fmt: skip

    def _load_futures(self, directory: DataDirectory, names: list[str]) -> None:
        for name in names:
            parsed, topic_id = parse_future_name(name), self._identity(directory, name)
            if parsed is None or topic_id is None or parsed[0] not in self.logs:
                continue  # the folder of its current log has just failed
            request = self._future_request(directory, parsed[0], f"{directory.path}/{name}")
            future = self._opener.open(directory, parsed[0], topic_id, request)
            if not directory.is_clean:  # it may lack batches in its middle
                try:
                    future.truncate_to(request.recovery_point)
                except KafkaError as e:
                    future.delete()
                    self._strays.set_aside(directory.path, name, str(e))
                    continue
            self.futures.resume(parsed[0], future)

    def _identity(self, directory: DataDirectory, name: str) -> UUID | None:
        """The topic id of a log's folder. A folder without one is set aside: None."""
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
            request = self._opener.request(directory, key, config, f"{directory.path}/{name}")
            log = self._opener.open(directory, key, topic_id, request)
            rejected = self._duplicates.add(log)
            if rejected is not None:
                self._set_log_aside(rejected, "another data folder has a more complete copy")
            if not directory.is_online:
                return

    def _future_request(self, directory: DataDirectory, key: Key, folder: str) -> LoadRequest:
        return self._opener.request(directory, key, self.logs[key].config, folder)

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
        """The log of that name, or None."""
        return self.logs.get((topic, partition))

    def find(self, topic: str, topic_id: UUID, partition: int) -> UnifiedLog | None:
        """The log of this topic id, even while another topic's log has its name; or None."""
        return self._duplicates.find((topic, partition), topic_id)

    def get_or_create(
        self, topic: str, topic_id: UUID, partition: int, config: LogConfig, *, is_new: bool
    ) -> UnifiedLog:
        """`find_or_plan`, and the planned creation at once."""
        found = self.find_or_plan(topic, topic_id, partition, config, is_new=is_new)
        if isinstance(found, LogCreation):
            found.run()
            return self.adopt(found)
        return found

    def find_or_plan(
        self, topic: str, topic_id: UUID, partition: int, config: LogConfig, *, is_new: bool
    ) -> UnifiedLog | LogCreation:
        """The replica's log, or its planned creation: `run` it in any thread, then `adopt` it.

        A log of that name with another topic id is set aside, never reused. A replica that is not
        new may be in a folder that is offline: KAFKA_STORAGE_ERROR then, as an empty log could
        win an election.
        """
        key = (topic, partition)
        for other in self._duplicates.assign_name(key, topic_id):
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
                f"{topic}-{partition}: no log found, and {self.offline_directories} are offline",
            )
        directory = self.futures.preferred(key) or least_used(
            self._online(), (log.path for log in self.logs.values())
        )
        directory.forget(key)
        if directory.has_checkpointed_start(key):
            self.checkpoint_log_starts()
        metadata = encode_partition_metadata(topic_id)
        folder = f"{directory.path}/{topic}-{partition}"
        request = self._opener.request(directory, key, config, folder)
        return LogCreation(self._files, directory, key, topic_id, metadata, request)

    def adopt(self, creation: LogCreation) -> UnifiedLog:
        """The log whose files `creation` made. Raises KAFKA_STORAGE_ERROR when it could not."""
        log = self.logs[creation.key] = self._adopted(creation)
        return log

    def _adopted(self, creation: LogCreation) -> UnifiedLog:
        if creation.loaded is None or not creation.directory.is_online:  # perhaps only just now
            error = creation.error or OSError("its data folder went offline")
            path = creation.request.folder
            self._failed(path, error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path}: {error}") from error
        return self._opener.log_of(
            creation.directory, creation.key, creation.topic_id, creation.request, creation.loaded
        )

    def _directory_of(self, log: UnifiedLog) -> DataDirectory:
        return next(d for d in self._directories if log.path.startswith(d.path + "/"))

    def delete(self, log: UnifiedLog) -> None:
        """Rename the log's folder to `-delete`; its files are removed later, off the loop.

        Raises OSError.
        """
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
        """Delete the log, if it is here, and the folders set aside of that topic.

        Raises OSError while a data folder is offline, even when a log was found: a copy there
        would come back with the disk, and the controller would not ask for its deletion again.
        """
        if (log := self.find(topic, topic_id, partition)) is not None:
            self.delete(log)
        self._strays.delete((topic, partition), topic_id, self.log_config({}).file_delete_delay_ms)
        if offline := self.offline_directories:
            raise OSError(f"there may be another copy: {offline} are offline")

    def high_watermark_checkpoint(self, log: UnifiedLog) -> int:
        """The checkpointed high watermark; 0 when there is none."""
        return self._directory_of(log).high_watermarks.get((log.topic, log.partition), 0)

    # -- periodic work

    def retain_all(self, tiered_end: Callable[[UnifiedLog], int | None] | None = None) -> int:
        """Apply retention to every log; a log that fails does not stop the others. Returns how many
        segments were deleted. `tiered_end(log)` is where its tiered history ends."""
        now_ms, count = self._clock.now_ms(), 0
        for log in list(self.logs.values()):
            end = tiered_end(log) if tiered_end is not None else None
            try:
                count += log.retain(now_ms, end, high_watermark=self.high_watermarks(log))
            except KafkaError as e:
                logger.error("%s: retention: %s", log.path, e)
        return count

    def expire_producers(self) -> None:
        """Forget the producers of every log that were silent for producer.id.expiration.ms."""
        now_ms = self._clock.now_ms()
        for log in self.logs.values():
            log.producers.expire(now_ms, self._producer_expiration_ms)

    def flush_due(self) -> None:
        """Flush the logs for which flush.ms is due, off the loop."""
        now_ms = self._clock.now_ms()
        for log in self.logs.values():
            log.apply_finished_flushes()
            log.flush_later(now_ms)

    def maintain_files(self) -> None:
        """The work of every second, whatever intervals are configured.

        Folders whose disk failed in an offloaded job go offline; recovery points, log starts and
        clean offsets that a truncation lowered are written, as what is appended in place of the cut
        must be checked after a crash, be kept, and be compacted; checkpoints drop deleted logs;
        index entries are written; deleted files are removed when their delay is over.
        """
        while self._failures:
            self._failed(*self._failures.popleft())
        if self._is_truncated:
            self._is_truncated = False
            self.checkpoint_recovery_points()
            self.checkpoint_log_starts()
            self.checkpoint_cleaned()
        if any(directory.has_forgotten for directory in self._online()):
            self.checkpoint_all()
        self._index_flusher.flush()
        self.remove_due_files()

    def _note_truncation(self) -> None:
        self._is_truncated = True

    def remove_due_files(self) -> None:
        """Remove, off the loop, the deleted files whose delay is over."""
        self._deferred_deletion.remove_due()

    def checkpoint_all(self) -> None:
        """Write all four checkpoints; deleted logs are in none of them afterwards."""
        for directory in self._online():
            directory.has_forgotten = False
        self.checkpoint_recovery_points()
        self.checkpoint_log_starts()
        self.checkpoint_high_watermarks()
        self.checkpoint_cleaned()

    def checkpoint_recovery_points(self) -> None:
        """Write recovery-point-offset-checkpoint of every data folder."""
        for log in self.logs.values():
            log.apply_finished_flushes()
        self._checkpoint(RECOVERY_POINTS, lambda log: log.recovery_point)

    def checkpoint_log_starts(self) -> None:
        """Write log-start-offset-checkpoint: log starts that are not the first segment's base."""
        self._checkpoint(
            LOG_STARTS,
            lambda log: (
                log.log_start_offset
                if log.config.remote_storage or log.log_start_offset != log.bases[0]
                else None
            ),
        )

    def checkpoint_high_watermarks(self) -> None:
        """Write replication-offset-checkpoint of every data folder."""
        self._checkpoint(HIGH_WATERMARKS, self.high_watermarks)

    def checkpoint_cleaned(self) -> None:
        """Write cleaner-offset-checkpoint: up to where each compacted log is clean."""
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

    # -- shutdown

    def close(self, broker_epoch: int = -1) -> None:
        """Shut down cleanly: close every log, write the checkpoints, then the clean-shutdown mark.
        Blocks."""
        for log in (*self._duplicates, *self.futures.logs.values()):
            try:
                log.close()
            except (OSError, KafkaError) as e:
                logger.error("%s: not closed cleanly: %s", log.path, e)
                self._failed(log.path, OSError(str(e)))  # so its folder gets no mark
        self.checkpoint_all()
        self._deferred_deletion.remove_new()
        mark = json.dumps({"version": MARK_VERSION, "brokerEpoch": broker_epoch}).encode()
        for directory in self._directories:
            directory.close(mark)

    def _failed(self, path: str, error: OSError) -> None:
        """Take the data folder that holds `path` offline, with its logs (KIP-112)."""
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
        for listener in self.on_offline:
            listener(directory.path, lost)
