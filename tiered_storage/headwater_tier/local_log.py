"""The log of a Delta table on a local disk: one new file per commit (Delta's transaction log).

deltalake lists the log, replays it and plans the commit of every append, some 20 ms of processor
time; for a topic that trickles this is most of what its tiering costs. What a commit of tiering
says is known without that: here it is written as the file that deltalake would write. A file of
the next version that another writer made first is never replaced, as with deltalake's own commits.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

from headwater.system import SystemClock, SystemEntropy
from headwater_tier.commit_fence import FileFacts
from headwater_tier.schema import stats_json

LOG_FOLDER = "_delta_log"
NO_LINKS = frozenset({errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EXDEV})
"""What file systems without hard links answer."""
ENGINE = "headwater"
_VERSION = re.compile(r"[0-9]{20}[.]")
"""How the name of a commit or a checkpoint begins."""
_PLAIN_PATH = re.compile(r"[A-Za-z0-9._/=-]+")
"""Paths that are the same in the log, where they are percent-encoded."""


def is_plain(path: str) -> bool:
    """True for a path that needs no encoding in the log. Pure."""
    return _PLAIN_PATH.fullmatch(path) is not None


def local_path(uri: str) -> str | None:
    """The folder of a table on the local file system; None for an object store."""
    parts = urlsplit(uri)
    if parts.scheme == "file":
        return unquote(parts.path)
    return os.path.abspath(uri) if "://" not in uri else None


class LocalLog:
    """Commits to one table's log, by one thread at a time."""

    def __init__(self, folder: str) -> None:
        """`folder`: the table's."""
        self._folder = os.path.join(folder, LOG_FOLDER)
        self._clock, self._entropy = SystemClock(), SystemEntropy()

    def is_newest(self, version: int) -> bool:
        """True if the log has this version and no later one. False too where that cannot be said,
        as the version's file was cleaned up."""
        has_later = os.path.exists(self._path(version + 1))
        return not has_later and os.path.exists(self._path(version))

    @property
    def exists(self) -> bool:
        """True when the table has a log, perhaps an empty one. Raises OSError where that cannot be
        said: a disk that fails for a moment must not look like a table that is not there."""
        try:
            return stat.S_ISDIR(os.stat(self._folder).st_mode)
        except FileNotFoundError:
            return False

    def create(
        self, kind: Mapping[str, str], name: str, columns: str, properties: Mapping[str, str]
    ) -> bool:
        """Write the first version: of a table without reader's and writer's features; `columns` is
        its schema in Delta's JSON. As `append`; FileExistsError also if the log has any version, as
        the first one's file is cleaned up one day."""
        parents = _make_folders(self._folder)
        with os.scandir(self._folder) as found:
            for entry in found:
                if _VERSION.match(entry.name):
                    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), entry.path)
        made = {
            "id": str(self._entropy.uuid()),
            "createdTime": self._clock.now_ms(),
            "name": name,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": columns,
            "partitionColumns": [],
            "configuration": properties,
        }
        actions = [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": made}]
        if not self._write(0, "CREATE TABLE", {}, kind, actions):
            return False
        for folder in parents:
            _make_durable(folder)
        return True

    def append(self, version: int, kind: Mapping[str, str], actions: Iterable[Any]) -> bool:
        """Write a commit, durable when this returns. `kind` is what its commitInfo says besides.

        False, and nothing was written, where the file system has no hard links. Raises
        FileExistsError if the version exists, OSError; after an error the log may have it.
        """
        return self._write(version, "WRITE", {"mode": "Append"}, kind, actions)

    def _write(
        self,
        version: int,
        operation: str,
        parameters: Mapping[str, str],
        kind: Mapping[str, str],
        actions: Iterable[Any],
    ) -> bool:
        info = {
            "timestamp": self._clock.now_ms(),
            "operation": operation,
            "operationParameters": parameters,
            "engineInfo": ENGINE,
            **kind,
        }
        lines = [json.dumps(a, separators=(",", ":")) for a in ({"commitInfo": info}, *actions)]
        staged = os.path.join(self._folder, f"_commit_{self._entropy.uuid()}.json.tmp")
        handle = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            with open(handle, "wb") as file:
                file.write("\n".join(lines).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
            os.link(staged, self._path(version))
        except OSError as error:
            if error.errno in NO_LINKS:
                return False
            raise
        finally:
            os.unlink(staged)
        _make_durable(self._folder)
        return True

    def _path(self, version: int) -> str:
        return os.path.join(self._folder, f"{version:020d}.json")


def _make_folders(folder: str) -> list[str]:
    """Make a log's folder and those above it; the folders whose entries are to be made durable: of
    the log, of the table, and of whatever was made above."""
    table = os.path.dirname(folder)
    parents = [table, os.path.dirname(table)]
    at = parents[-1]
    while not _is_there(at):
        at = os.path.dirname(at)
        parents.append(at)
    os.makedirs(folder, exist_ok=True)
    return parents


def _is_there(path: str) -> bool:
    try:
        os.stat(path)
    except FileNotFoundError:
        return False
    return True


def _make_durable(folder: str) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def actions_of(
    adds: Sequence[FileFacts],
    removes: Sequence[tuple[str, int]],
    versions: Mapping[str, int],
    *,
    now_ms: int,
    data_change: bool,
) -> list[dict[str, Any]]:
    """A commit's actions. `removes`: path and size of files whose rows stay in others, or are
    below the log start; `versions`: of application transactions. Pure."""
    found = [{"add": _added(facts, data_change=data_change)} for facts in adds]
    found += [{"remove": _removed(path, size, now_ms)} for path, size in removes]
    return found + [{"txn": {"appId": name, "version": at}} for name, at in versions.items()]


def _added(facts: FileFacts, *, data_change: bool) -> dict[str, Any]:
    return {
        "path": facts.path,
        "partitionValues": {},
        "size": facts.size_bytes,
        "modificationTime": facts.written_ms,
        "dataChange": data_change,
        "stats": stats_json(facts),
    }


def _removed(path: str, size_bytes: int, now_ms: int) -> dict[str, Any]:
    return {
        "path": path,
        "deletionTimestamp": now_ms,
        "dataChange": False,
        "extendedFileMetadata": True,
        "partitionValues": {},
        "size": size_bytes,
    }
