"""Future logs: copies of this broker's logs on their way to another data folder (KIP-113).

A copy is in `<topic>-<partition>.<id>-future` until it has everything that the current log has.
Then two renames, in this order, put it in place:

1. the current log's folder to `<topic>-<partition>.<id>-delete`, with the copy's own id;
2. the copy's folder to `<topic>-<partition>`.

So a crash leaves one current log or none, never two. When it leaves none, two names with one id
show at the next start that step 2 is missing (`judge_future`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple
from uuid import UUID

from headwater.entropy import Entropy
from headwater.errors import ErrorCode, KafkaError
from headwater.ports.files import Files
from headwater_broker.log.checkpoint_files import CheckpointError, encode_partition_metadata
from headwater_broker.log.log_context import RenamedFiles
from headwater_broker.log.log_creation import Key, LogCreation
from headwater_broker.log.log_dir import DataDirectory, parse_folder_name, topic_id_in
from headwater_broker.log.log_loader import LoadRequest
from headwater_broker.log.unified_log import UnifiedLog

FUTURE_SUFFIX = "-future"
DELETE_SUFFIX = "-delete"
NAME_BYTES_MAX = 255
"""Limit of a folder's name on common file systems."""
PREFERRED_MAX = 10_000
"""Preferred folders remembered for replicas that are not here yet; the oldest is dropped first."""

logger = logging.getLogger(__name__)


class FutureFacts(NamedTuple):
    """The folders beside a future log at start."""

    has_current: bool
    """A current log of the same topic. A log of another topic with that name does not count: its
    folder may have been offline while this topic was created."""
    was_replacing: bool
    """There is a `-delete` folder with its id: the current log, renamed away for this one."""
    all_online: bool
    """No data folder is offline."""


class FutureCase(Enum):
    """The lettered cases of a future log found at start, with what to do."""

    A_RESUME = "A: still being copied; resume"
    B_REPLACE = "B: it was replacing the current log; finish that"
    C_WAIT = "C: the current log is in a folder that is offline; leave both"
    D_ASIDE = "D: a copy, perhaps unfinished, of a deleted log; set aside"


def judge_future(facts: FutureFacts) -> FutureCase:
    """
    | current | was replacing | all online | case |
    |    1    |       -       |     -      |  A   |
    |    0    |       1       |     -      |  B   |
    |    0    |       0       |     0      |  C   |
    |    0    |       0       |     1      |  D   |
    """
    if facts.has_current:
        return FutureCase.A_RESUME
    if facts.was_replacing:
        return FutureCase.B_REPLACE
    return FutureCase.D_ASIDE if facts.all_online else FutureCase.C_WAIT


def future_name(key: Key, identity: str) -> str:
    """The name of a future log's folder."""
    return f"{key[0]}-{key[1]}.{identity}{FUTURE_SUFFIX}"


def parse_future_name(name: str) -> tuple[Key, str] | None:
    """((topic, partition), id) of a future log's folder; None for others."""
    if not name.endswith(FUTURE_SUFFIX):
        return None
    stem, dot, identity = name[: -len(FUTURE_SUFFIX)].rpartition(".")
    key = parse_folder_name(stem) if dot else None
    return None if key is None else (key, identity)


def recover_futures(
    files: Files,
    names: dict[str, list[str]],
    *,
    all_online: bool,
    set_aside: Callable[[str, str, str], None],
    failed: Callable[[str, OSError], None],
) -> dict[str, list[str]]:
    """Finish or undo replacements that a crash interrupted; called before any log is opened.

    `names`: the names in each data folder that is online. `set_aside(folder, name, reason)` renames
    a folder that must not be used. Returns the names of the future logs to resume, by data folder.
    """
    present = {name for found in names.values() for name in found}
    ids, all_read = _topic_ids(files, names, failed)
    resumed: dict[str, list[str]] = {}
    for folder, found in names.items():
        try:
            for name in found:
                parsed = parse_future_name(name)
                if parsed is None:
                    continue
                stem = f"{parsed[0][0]}-{parsed[0][1]}"
                replaced = f"{stem}.{parsed[1]}{DELETE_SUFFIX}"
                mine, there = ids.get(name, {None}), ids.get(stem, set())
                has_current = bool(mine & there) or (bool(there) and None in mine | there)
                facts = FutureFacts(has_current, replaced in present, all_online and all_read)
                case = judge_future(facts)
                logger.info("%s/%s: %s", folder, name, case.value)
                if case is FutureCase.A_RESUME:
                    resumed.setdefault(folder, []).append(name)
                elif case is FutureCase.B_REPLACE:
                    files.rename(f"{folder}/{name}", f"{folder}/{stem}")
                    ids.setdefault(stem, set()).update(mine)
                elif case is FutureCase.D_ASIDE:
                    set_aside(folder, name, "the log that it was to replace does not exist")
        except OSError as e:
            failed(f"{folder}/", e)
    return resumed


def _topic_ids(
    files: Files, names: dict[str, list[str]], failed: Callable[[str, OSError], None]
) -> tuple[dict[str, set[UUID | None]], bool]:
    """(topic ids by folder name, of future logs and of the logs that they are to replace; whether
    all of them could be read). A topic id of None: the folder has none that can be read."""
    futures = [(name, parsed[0]) for found in names.values() for name in found
               if (parsed := parse_future_name(name)) is not None]  # fmt: skip
    asked = {n for name, (topic, partition) in futures for n in (name, f"{topic}-{partition}")}
    ids: dict[str, set[UUID | None]] = {}
    all_read = True
    for folder, found in names.items():
        try:
            for name in asked.intersection(found):
                ids.setdefault(name, set()).add(_topic_id(files, f"{folder}/{name}"))
        except OSError as e:
            failed(f"{folder}/", e)
            all_read = False
    return ids, all_read


def _topic_id(files: Files, folder: str) -> UUID | None:
    try:
        return topic_id_in(files, folder)
    except CheckpointError:
        return None


@dataclass(frozen=True, slots=True)
class FutureLogContext:
    """The parts of the log manager that future logs use."""

    files: Files
    entropy: Entropy
    directories: list[DataDirectory]
    current: dict[Key, UnifiedLog]
    request: Callable[[DataDirectory, Key, str], LoadRequest]
    """(data folder, key, the log's folder) -> how to load it, with the current log's config."""
    adopt: Callable[[LogCreation], UnifiedLog]
    delete_later: Callable[[RenamedFiles], None]
    failed: Callable[[str, OSError], None]


class FutureLogs:
    """The copies under way, at most one per log, and the preferred folders of logs to come."""

    def __init__(self, context: FutureLogContext) -> None:
        self.logs: dict[Key, UnifiedLog] = {}
        """By topic and partition; only this class changes it."""
        self.announced: dict[Key, UUID] = {}
        """Directory ids that the controller has for logs whose copies are not in place yet."""
        self._context = context
        self._preferred: dict[Key, str] = {}

    def directory(self, path: str) -> DataDirectory:
        """One of log.dirs. Raises LOG_DIR_NOT_FOUND; KAFKA_STORAGE_ERROR when it is offline."""
        for directory in self._context.directories:
            if directory.path == path:
                break
        else:
            raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND, f"{path!r} is not one of log.dirs")
        if not directory.is_online:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"data folder {path} is offline")
        return directory

    def folder_of(self, log: UnifiedLog) -> UUID:
        """The directory id of a log as the controller must know it.

        Of a copy that is about to be in place the controller was given the new id already; the old
        one would look like a newer change.
        """
        key = (log.topic, log.partition)
        future = self.logs.get(key)
        if future is None or self.announced.get(key) != future.directory_id:
            return log.directory_id
        return future.directory_id

    # -- preferred folders

    def prefer(self, key: Key, path: str) -> None:
        """Create the log of a replica that is not here yet in this data folder."""
        self._preferred.pop(key, None)
        self._preferred[key] = path
        while len(self._preferred) > PREFERRED_MAX:
            del self._preferred[next(iter(self._preferred))]

    def preferred(self, key: Key) -> DataDirectory | None:
        """The preferred data folder of a new log, returned once; None: there is no preference."""
        path = self._preferred.pop(key, None)
        online = (d for d in self._context.directories if d.is_online)
        return next((d for d in online if d.path == path), None)

    # -- copies

    def plan(self, key: Key, path: str) -> LogCreation:
        """The planned creation of a future log: `run` it in any thread, then `add` it."""
        context = self._context
        directory = self.directory(path)
        name = future_name(key, context.entropy.uuid().hex)
        if len(name.encode()) > NAME_BYTES_MAX:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name}: longer than {NAME_BYTES_MAX} bytes"
            )
        directory.forget(key)
        topic_id = context.current[key].topic_id
        request = context.request(directory, key, f"{directory.path}/{name}")
        metadata = encode_partition_metadata(topic_id)
        return LogCreation(context.files, directory, key, topic_id, metadata, request)

    def add(self, creation: LogCreation) -> UnifiedLog | None:
        """The future log whose files `creation` made; None when its current log was deleted
        meanwhile. Raises KAFKA_STORAGE_ERROR."""
        future = self._context.adopt(creation)
        log = self._context.current.get(creation.key)
        if log is None or log.topic_id != creation.topic_id or creation.key in self.logs:
            self._discard(future)
            return None
        self.logs[creation.key] = future
        return future

    def resume(self, key: Key, future: UnifiedLog) -> None:
        """Go on with a future log found at start, unless its current log is another topic's."""
        log = self._context.current.get(key)
        if log is None or log.topic_id != future.topic_id or key in self.logs:
            self._discard(future)
        else:
            self.logs[key] = future

    def drop(self, key: Key) -> None:
        """Cancel a copy: its folder is renamed at once, and its files are removed later."""
        future = self.logs.pop(key, None)
        if future is not None:
            self._discard(future)

    def drop_of(self, log: UnifiedLog) -> None:
        """Cancel the copy of this log, if one is under way."""
        future = self.logs.get((log.topic, log.partition))
        if future is not None and future.topic_id == log.topic_id:
            self.drop((log.topic, log.partition))

    def put_in_place(self, key: Key) -> UnifiedLog:
        """Make the future log the current one. Raises KAFKA_STORAGE_ERROR.

        The caller has checked that both hold the same, and that no job off the loop writes to the
        future log.
        """
        context, future, old = self._context, self.logs[key], self._context.current[key]
        parsed = parse_future_name(future.path.rpartition("/")[2])
        assert parsed is not None
        away = f"{old.path}.{parsed[1]}{DELETE_SUFFIX}"
        place = f"{future.path.rpartition('/')[0]}/{key[0]}-{key[1]}"
        old.truncations += 1  # a running job would write a snapshot, and create the folder again
        try:
            context.files.rename(old.path, away)
        except OSError as e:
            raise old.storage_error(e) from e
        try:
            context.files.rename(future.path, place)
        except OSError as e:
            context.files.rename(away, old.path)
            raise future.storage_error(e) from e
        del self.logs[key]
        old.delete()
        next(d for d in context.directories if d.directory_id == old.directory_id).forget(key)
        context.delete_later(_renamed_files(old, away))
        future.relocate(place)
        future.producers = old.producers
        future.first_dirty_offset = min(future.first_dirty_offset, old.first_dirty_offset)
        context.current[key] = future
        return future

    def directory_failed(self, path: str, lost: Iterable[Key]) -> None:
        """A data folder went offline: drop the copies in it, and the copies of its logs."""
        gone = {k for k, f in self.logs.items() if f.path.startswith(path + "/")}
        for key in gone.union(lost):
            future = self.logs.pop(key, None)
            if future is not None:
                future.delete()

    def _discard(self, future: UnifiedLog) -> None:
        future.delete()
        target = future.path.removesuffix(FUTURE_SUFFIX) + DELETE_SUFFIX
        try:
            self._context.files.rename(future.path, target)
        except OSError as e:
            self._context.failed(future.path, e)
            return
        self._context.delete_later(_renamed_files(future, target))


def _renamed_files(log: UnifiedLog, path: str) -> RenamedFiles:
    files = tuple(segment.file for segment in log.segments)
    return RenamedFiles((path,), files, log.config.file_delete_delay_ms)
