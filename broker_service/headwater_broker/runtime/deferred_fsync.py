"""Files for the broker's loop: what is replaced or renamed there becomes durable a moment later.

On the loop, a small file is written and renamed in the page cache at once, so that it survives
the death of the process, and its fsync runs in a disk thread, so that no request waits for it
(Kafka does the same with leader epochs and partition metadata: KAFKA-15046). The fsyncs of
`GATHER_S` run together: each one makes the file system commit its journal, and whoever creates a
file meanwhile waits for that. What a power failure could undo in between is no more than what it
can undo of the log itself, which is not fsynced per append either; who must not be undone waits
(`durable`). In any other thread, and once `settle` was called, every call is durable at return.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from headwater.system_files import SystemFiles

GATHER_S = 0.3

logger = logging.getLogger(__name__)


class LateSyncFiles(SystemFiles):
    """`headwater.ports.files.Files`; made on the loop's thread."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool
        self._loop_thread = threading.get_ident()
        self._settled = threading.Event()
        self._hurried = threading.Event()
        """Somebody waits: the next fsyncs gather no more."""
        self._here = threading.local()
        self._lock = threading.Lock()
        self._files: set[str] = set()
        self._folders: set[str] = set()
        self._job: Future[None] | None = None

    def settle(self) -> None:
        """From now on nothing is late: the broker is stopping. Waits for what is."""
        self._settled.set()
        self._hurried.set()
        job = self._job
        if job is not None:
            job.result()

    async def durable(self) -> None:
        """Return when all is durable that was replaced or renamed so far; called on the loop."""
        job = self._job
        if job is not None and not job.done():
            self._hurried.set()
            await asyncio.wrap_future(job)

    def run_late(self, job: Callable[[], None]) -> None:
        """Run a job of the loop in this thread: what it writes is durable soon, too."""
        self._here.is_late = True
        try:
            job()
        finally:
            self._here.is_late = False

    def write_atomic(self, path: str, data: bytes) -> None:
        """Replace a small file; durable soon."""
        if not self._is_late():
            super().write_atomic(path, data)
            return
        folder = os.path.dirname(path)
        is_here = threading.get_ident() == self._loop_thread
        temporary = path + (".tmp" if is_here else ".late.tmp")  # both may replace it at once
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        try:
            fd = os.open(temporary, flags, 0o644)
        except FileNotFoundError:
            os.makedirs(folder, exist_ok=True)
            self._sync_soon(None, os.path.dirname(folder))
            fd = os.open(temporary, flags, 0o644)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(fd, rest) :]
            os.rename(temporary, path)
        finally:
            os.close(fd)
        self._sync_soon(path, folder)

    def rename(self, source: str, target: str) -> None:
        """Rename; durable soon."""
        if not self._is_late():
            super().rename(source, target)
            return
        os.rename(source, target)
        self._sync_soon(None, os.path.dirname(target))

    def _is_late(self) -> bool:
        if self._settled.is_set():
            return False
        return threading.get_ident() == self._loop_thread or getattr(self._here, "is_late", False)

    def _sync_soon(self, path: str | None, folder: str) -> None:
        with self._lock:
            is_first = not self._folders
            self._folders.add(folder)
            if path is not None:
                self._files.add(path)
        if is_first:
            self._job = self._pool.submit(self._sync)

    def _sync(self) -> None:
        self._hurried.wait(GATHER_S)
        with self._lock:
            self._hurried.clear()
            files, self._files = self._files, set()
            folders, self._folders = self._folders, set()
        for path in sorted(files):
            _sync(path, os.O_RDONLY)
        for folder in sorted(folders):
            _sync(folder, os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: str, flags: int) -> None:
    try:
        fd = os.open(path, flags | os.O_CLOEXEC)
    except FileNotFoundError:
        return  # it was renamed away or removed meanwhile
    try:
        os.fsync(fd)
    except OSError as error:
        logger.error("fsync of %s failed: %s", path, error)
    finally:
        os.close(fd)
