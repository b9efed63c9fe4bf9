"""Takes back what a cluster's failed start has written, so that it leaves the folder as it was.

Only files that a start makes and that did not exist before are removed, and none at all once this
start has made a replica: a client may have written to it.
"""

from __future__ import annotations

import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from headwater.errors import UsageError
from headwater.local.cluster_file import FILE_NAME, DirectoryLock
from headwater.local.data_folders import data_folders, replicas
from headwater.local.private_file import write_private
from headwater.local.security_folder import FOLDER

LOGS = "logs"
MADE_BY_A_START = (".lock", f"{FILE_NAME}*", "*.sock", "conf", LOGS, FOLDER, "zookeeper")


@contextmanager
def undone_if_it_fails(directory: Path, data_roots: Iterable[Path] = ()) -> Iterator[None]:
    """Start a cluster in `directory` within this context; `data_roots` as in its spec."""
    before = _Before(directory, [directory, *data_roots])
    try:
        yield
    except BaseException as error:
        # An error names a log for its details, if there is one.
        before.restore(keep_logs=str(directory / LOGS) in str(error))
        raise


class _Before:
    """The cluster's folder before the start."""

    def __init__(self, directory: Path, data_roots: list[Path]) -> None:
        self._directory = directory
        self._data_roots = data_roots
        self._absent = [
            folder for root in data_roots for folder in (root, *root.parents) if not folder.exists()
        ]
        self._present = set(self._made()) if directory.is_dir() else set()
        self._data_folders = set(data_folders(data_roots))
        self._replicas = self._all_replicas()
        self._cluster_file = _read(directory / FILE_NAME)
        self._modes = _modes((directory, directory / FILE_NAME, *self._data_folders))

    def restore(self, *, keep_logs: bool) -> None:
        """Remove what is new, unless another process uses the folder."""
        if not self._directory.is_dir():
            return
        lock = DirectoryLock(self._directory)
        try:
            lock.acquire()
        except UsageError:
            return  # a cluster runs here: the files are its own
        try:
            if self._all_replicas() <= self._replicas:
                self._remove_new(keep_logs)
        finally:
            lock.release()

    def _remove_new(self, keep_logs: bool) -> None:
        for folder in set(data_folders(self._data_roots)) - self._data_folders:
            shutil.rmtree(folder)
        for path in set(self._made()) - self._present:
            if path.name == LOGS and keep_logs:
                continue
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
        if self._cluster_file is not None:
            write_private(self._directory / FILE_NAME, self._cluster_file)
        for path, mode in self._modes.items():
            path.chmod(mode)
        for folder in self._absent:
            with suppress(OSError):  # it is not empty
                folder.rmdir()

    def _made(self) -> Iterator[Path]:
        for pattern in MADE_BY_A_START:
            yield from self._directory.glob(pattern)

    def _all_replicas(self) -> set[Path]:
        return {path for folder in data_folders(self._data_roots) for path in replicas(folder)}


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _modes(paths: Iterable[Path]) -> dict[Path, int]:
    return {path: stat.S_IMODE(path.stat().st_mode) for path in paths if path.exists()}
