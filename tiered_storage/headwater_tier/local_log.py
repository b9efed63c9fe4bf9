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
from collections.abc import Iterable, Mapping
from typing import Any

from headwater.system import SystemClock, SystemEntropy

LOG_FOLDER = "_delta_log"
NO_LINKS = frozenset({errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EXDEV})
"""What file systems without hard links answer."""
ENGINE = "headwater"
_PLAIN_PATH = re.compile(r"[A-Za-z0-9._/=-]+")
"""Paths that are the same in the log, where they are percent-encoded."""


def is_plain(path: str) -> bool:
    """True for a path that needs no encoding in the log. Pure."""
    return _PLAIN_PATH.fullmatch(path) is not None


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
        """True when the table has a log, perhaps an empty one."""
        return os.path.isdir(self._folder)

    def create(self, kind: Mapping[str, str], metadata: Mapping[str, Any]) -> bool:
        """Write the first version: of a table without reader's and writer's features, with this
        metaData. As `append`."""
        os.makedirs(self._folder, exist_ok=True)
        made = {"id": str(self._entropy.uuid()), "createdTime": self._clock.now_ms(), **metadata}
        actions = [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": made}]
        if not self._write(0, "CREATE TABLE", {}, kind, actions):
            return False
        table = os.path.dirname(self._folder)
        for folder in (table, os.path.dirname(table)):
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


def _make_durable(folder: str) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def add_action(
    path: str, size_bytes: int, modified_ms: int, stats: str, *, data_change: bool
) -> dict[str, Any]:
    """Delta's `add` of a file without partition values. Pure."""
    return {
        "add": {
            "path": path,
            "partitionValues": {},
            "size": size_bytes,
            "modificationTime": modified_ms,
            "dataChange": data_change,
            "stats": stats,
        }
    }


def remove_action(path: str, size_bytes: int, now_ms: int) -> dict[str, Any]:
    """Delta's `remove` of a file whose rows stay in others, or are below the log start. Pure."""
    return {
        "remove": {
            "path": path,
            "deletionTimestamp": now_ms,
            "dataChange": False,
            "extendedFileMetadata": True,
            "partitionValues": {},
            "size": size_bytes,
        }
    }


def txn_action(app_id: str, version: int) -> dict[str, Any]:
    """Delta's `txn`, an application transaction. Pure."""
    return {"txn": {"appId": app_id, "version": version}}
