"""Files for the broker's loop: what is replaced or renamed there becomes durable a moment later.

On the loop, a small file is written and renamed in the page cache at once, so that it survives
the death of the process, and its fsync runs in a disk thread, so that no request waits for it
(Kafka does the same with leader epochs and partition metadata: KAFKA-15046). What a power failure
could undo in between is no more than what it can undo of the log itself, which is not fsynced per
append either. In any other thread, and once `settle` was called, every call is durable at return.
"""

from __future__ import annotations

import logging
import os
import threading
from concurrent.futures import ThreadPoolExecutor

from headwater.system_files import SystemFiles

logger = logging.getLogger(__name__)


class LateSyncFiles(SystemFiles):
    """`headwater.ports.files.Files`; made on the loop's thread."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool
        self._loop_thread = threading.get_ident()
        self._settled = False

    def settle(self) -> None:
        """From now on nothing is late: the broker is stopping."""
        self._settled = True

    def write_atomic(self, path: str, data: bytes) -> None:
        """Replace a small file; durable soon."""
        if not self._is_late():
            super().write_atomic(path, data)
            return
        folder = os.path.dirname(path)
        os.makedirs(folder, exist_ok=True)
        temporary = path + ".tmp"
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(fd, rest) :]
            os.rename(temporary, path)
        except BaseException:
            os.close(fd)
            raise
        self._pool.submit(_sync_and_close, fd, path, folder)

    def rename(self, source: str, target: str) -> None:
        """Rename; durable soon."""
        if not self._is_late():
            super().rename(source, target)
            return
        os.rename(source, target)
        self._pool.submit(_sync_folder, os.path.dirname(target))

    def _is_late(self) -> bool:
        return not self._settled and threading.get_ident() == self._loop_thread


def _sync_and_close(fd: int, path: str, folder: str) -> None:
    try:
        os.fsync(fd)
    except OSError as error:
        logger.error("fsync of %s failed: %s", path, error)
    finally:
        os.close(fd)
    _sync_folder(folder)


def _sync_folder(folder: str) -> None:
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return  # the folder itself was renamed away or removed meanwhile
    try:
        os.fsync(fd)
    except OSError as error:
        logger.error("fsync of folder %s failed: %s", folder, error)
    finally:
        os.close(fd)
