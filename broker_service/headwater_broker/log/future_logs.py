"""Future logs: copies of this broker's logs under way to another of its data folders (KIP-113).

A copy lives in `<topic>-<partition>.<id>-future` until it has all that the current log has. Then
two renames, in this order, put it in place:

1. the current log's folder to `<topic>-<partition>.<id>-delete`, with the copy's own id;
2. the copy's folder to `<topic>-<partition>`.

So a crash leaves one current log or none, never two, and in the second case the pair of names with
one id tells at start that step 2 is missing (`judge_future`).
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
"""Of a folder's name, on every file system in use."""
PREFERRED_MAX = 10_000
"""Folders remembered for replicas that are not here yet; the oldest is forgotten first."""

logger = logging.getLogger(__name__)


class FutureFacts(NamedTuple):
    """What lies beside a future log at start."""

    has_current: bool
    """Not one of another topic of that name, in a folder that was away while this one was made."""
    has_twin: bool
    """A `-delete` folder with its id: the current log, renamed away for this one."""
    all_online: bool
    """No data folder is offline."""


class FutureCase(Enum):
    """The lettered cases of a future log found at start, with what to do."""

    A_RESUME = "A: still being copied; go on"
    B_REPLACE = "B: it was taking the current log's place; finish that"
    C_WAIT = "C: the current log is in a folder that is offline; leave both alone"
    D_ASIDE = "D: a copy, perhaps unfinished, of a log that is gone; set aside"


def judge_future(facts: FutureFacts) -> FutureCase:
    """
    | current | twin | all online | case |
    |    1    |  -   |     -      |  A   |
    |    0    |  1   |     -      |  B   |
    |    0    |  0   |     0      |  C   |
    |    0    |  0   |     1      |  D   |
    """
    if facts.has_current:
        return FutureCase.A_RESUME
    if facts.has_twin:
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
    """At start, before any log is opened: finish or undo what a crash left.

    `names`: by data folder that is online, what is in it; `set_aside(folder, name, reason)`. Gives
    back the names of the future logs to be taken up.
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
                twin = f"{stem}.{parsed[1]}{DELETE_SUFFIX}"
                mine, there = ids.get(name, {None}), ids.get(stem, set())
                has_current = bool(mine & there) or (bool(there) and None in mine | there)
                facts = FutureFacts(has_current, twin in present, all_online and all_read)
                case = judge_future(facts)
                logger.info("%s/%s: %s", folder, name, case.value)
                if case is FutureCase.A_RESUME:
                    resumed.setdefault(folder, []).append(name)
                elif case is FutureCase.B_REPLACE:
                    files.rename(f"{folder}/{name}", f"{folder}/{stem}")
                    ids.setdefault(stem, set()).update(mine)
                elif case is FutureCase.D_ASIDE:
                    set_aside(folder, name, "the log that it was to replace is gone")
        except OSError as e:
            failed(f"{folder}/", e)
    return resumed


def _topic_ids(
    files: Files, names: dict[str, list[str]], failed: Callable[[str, OSError], None]
) -> tuple[dict[str, set[UUID | None]], bool]:
    """(by name of a folder, the topics of future logs and of those they are to replace; could all
    be read). None: it does not tell."""
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
class FutureParts:
    """What future logs share with the manager of all logs."""

    files: Files
    entropy: Entropy
    directories: list[DataDirectory]
    current: dict[Key, UnifiedLog]
    request: Callable[[DataDirectory, Key, str], LoadRequest]
    """(data folder, key, folder of the log) -> how to open it, with the current log's config."""
    adopt: Callable[[LogCreation], UnifiedLog]
    delete_later: Callable[[RenamedFiles], None]
    failed: Callable[[str, OSError], None]


class FutureLogs:
    """The copies under way, at most one of each log, and where logs to come shall be made."""

    def __init__(self, parts: FutureParts) -> None:
        self.logs: dict[Key, UnifiedLog] = {}
        """Never change it from outside."""
        self.announced: dict[Key, UUID] = {}
        """Data folders that the controller is told of before the copies there are in place."""
        self._parts = parts
        self._preferred: dict[Key, str] = {}

    def directory(self, path: str) -> DataDirectory:
        """One of log.dirs. Raises LOG_DIR_NOT_FOUND, or KAFKA_STORAGE_ERROR when it is offline."""
        for directory in self._parts.directories:
            if directory.path == path:
                break
        else:
            raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND, f"{path!r} is not one of log.dirs")
        if not directory.is_online:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"data folder {path} is offline")
        return directory

    def folder_of(self, log: UnifiedLog) -> UUID:
        """Where the controller shall believe a log to be: it may be told so of a copy that is about
        to be in place, and would take the log's own folder for the latest news of it."""
        key = (log.topic, log.partition)
        future = self.logs.get(key)
        if future is None or self.announced.get(key) != future.directory_id:
            return log.directory_id
        return future.directory_id

    # -- logs to come

    def prefer(self, key: Key, path: str) -> None:
        """A replica that is not here yet shall be made in this folder."""
        self._preferred.pop(key, None)
        self._preferred[key] = path
        while len(self._preferred) > PREFERRED_MAX:
            del self._preferred[next(iter(self._preferred))]

    def preferred(self, key: Key) -> DataDirectory | None:
        """Where a new log was asked to be, once; None: anywhere."""
        path = self._preferred.pop(key, None)
        online = (d for d in self._parts.directories if d.is_online)
        return next((d for d in online if d.path == path), None)

    # -- a copy, from its beginning to its end

    def plan(self, key: Key, path: str) -> LogCreation:
        """How to make the future log of a log that is here: `run` that anywhere, then `add` it."""
        parts = self._parts
        directory = self.directory(path)
        name = future_name(key, parts.entropy.uuid().hex)
        if len(name.encode()) > NAME_BYTES_MAX:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name}: longer than {NAME_BYTES_MAX} bytes"
            )
        directory.forget(key)
        topic_id = parts.current[key].topic_id
        request = parts.request(directory, key, f"{directory.path}/{name}")
        metadata = encode_partition_metadata(topic_id)
        return LogCreation(parts.files, directory, key, topic_id, metadata, request)

    def add(self, creation: LogCreation) -> UnifiedLog | None:
        """The future log whose files `creation` has made; None when its log is gone meanwhile.
        Raises KAFKA_STORAGE_ERROR."""
        future = self._parts.adopt(creation)
        log = self._parts.current.get(creation.key)
        if log is None or log.topic_id != creation.topic_id or creation.key in self.logs:
            self._discard(future)
            return None
        self.logs[creation.key] = future
        return future

    def resume(self, key: Key, future: UnifiedLog) -> None:
        """A future log found at start: it is gone on with, if it is of this log."""
        log = self._parts.current.get(key)
        if log is None or log.topic_id != future.topic_id or key in self.logs:
            self._discard(future)
        else:
            self.logs[key] = future

    def drop(self, key: Key) -> None:
        """Give a copy up: its folder is renamed at once, and its files go later."""
        future = self.logs.pop(key, None)
        if future is not None:
            self._discard(future)

    def drop_of(self, log: UnifiedLog) -> None:
        """Give up the copy of this log, if one is under way."""
        future = self.logs.get((log.topic, log.partition))
        if future is not None and future.topic_id == log.topic_id:
            self.drop((log.topic, log.partition))

    def put_in_place(self, key: Key) -> UnifiedLog:
        """The future log becomes the current one; the caller has seen that it holds the same, and
        that nothing of it waits to be written elsewhere. Raises KAFKA_STORAGE_ERROR.
        """
        parts, future, old = self._parts, self.logs[key], self._parts.current[key]
        parsed = parse_future_name(future.path.rpartition("/")[2])
        assert parsed is not None
        away = f"{old.path}.{parsed[1]}{DELETE_SUFFIX}"
        place = f"{future.path.rpartition('/')[0]}/{key[0]}-{key[1]}"
        old.truncations += 1  # a job under way that writes into the folder would make it anew
        try:
            parts.files.rename(old.path, away)
        except OSError as e:
            raise old.storage_error(e) from e
        try:
            parts.files.rename(future.path, place)
        except OSError as e:
            parts.files.rename(away, old.path)
            raise future.storage_error(e) from e
        del self.logs[key]
        old.delete()
        next(d for d in parts.directories if d.directory_id == old.directory_id).forget(key)
        parts.delete_later(_renamed_files(old, away))
        future.relocate(place)
        future.producers = old.producers
        future.first_dirty_offset = min(future.first_dirty_offset, old.first_dirty_offset)
        parts.current[key] = future
        return future

    def directory_failed(self, path: str, lost: Iterable[Key]) -> None:
        """A data folder went offline: with it the copies in it, and those of the logs in it."""
        gone = {k for k, f in self.logs.items() if f.path.startswith(path + "/")}
        for key in gone.union(lost):
            future = self.logs.pop(key, None)
            if future is not None:
                future.delete()

    def _discard(self, future: UnifiedLog) -> None:
        future.delete()
        target = future.path.removesuffix(FUTURE_SUFFIX) + DELETE_SUFFIX
        try:
            self._parts.files.rename(future.path, target)
        except OSError as e:
            self._parts.failed(future.path, e)
            return
        self._parts.delete_later(_renamed_files(future, target))


def _renamed_files(log: UnifiedLog, path: str) -> RenamedFiles:
    files = tuple(segment.file for segment in log.segments)
    return RenamedFiles((path,), files, log.config.file_delete_delay_ms)
