"""Files for the broker's loop: the fsync of a replaced or renamed file runs a moment later.

On the loop, a small file is written and renamed in the page cache at once, so that it survives the
death of the process. Its fsync runs in a disk thread, so that no request waits for it; Kafka does
the same with leader epochs and partition metadata (KAFKA-15046). The fsyncs of `GATHER_S` run
together: each one makes the file system commit its journal, and every creation of a file waits for
that. A power failure may undo the changes in between, as it may undo appends, which are not fsynced
one by one either; a change that must not be undone is awaited (`durable`). In any other thread, and
after `sync_all`, every change is durable when the call returns.
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


def fsync_path(path: str, flags: int) -> None:
    """Make a file or folder durable; a failure is logged."""
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


class DeferredFsyncFiles(SystemFiles):
    """Implements `headwater.ports.files.Files`; must be made on the loop's thread."""

    def __init__(
        self,
        pool: ThreadPoolExecutor,
        *,
        gather_s: float = GATHER_S,
        fsync: Callable[[str, int], None] = fsync_path,
    ) -> None:
        """`fsync(path, flags)` makes the file or folder durable that `flags` open."""
        self._pool = pool
        self._gather_s = gather_s
        self._fsync = fsync
        self._loop_thread = threading.get_ident()
        self._is_stopping = threading.Event()
        self._hurried = threading.Event()
        """A caller waits: the next fsyncs run at once."""
        self._thread = threading.local()
        self._lock = threading.Lock()
        self._files: set[str] = set()
        self._folders: set[str] = set()
        self._job: Future[None] | None = None

    def sync_all(self) -> None:
        """Wait for all deferred fsyncs, and defer none from now on: the broker is stopping."""
        self._is_stopping.set()
        self._hurried.set()
        job = self._job
        if job is not None:
            job.result()

    async def durable(self) -> None:
        """Return when everything replaced or renamed so far is durable; called on the loop."""
        job = self._job
        if job is not None and not job.done():
            self._hurried.set()
            await asyncio.wrap_future(job)

    def run_deferred(self, job: Callable[[], None]) -> None:
        """Run a job in this thread with its fsyncs deferred, as on the loop."""
        self._thread.is_deferred = True
        try:
            job()
        finally:
            self._thread.is_deferred = False

    def write_atomic(self, path: str, data: bytes) -> None:
        """Replace a small file; its fsync is deferred on the loop."""
        if not self._is_deferred():
            super().write_atomic(path, data)
            return
        folder = os.path.dirname(path)
        is_here = threading.get_ident() == self._loop_thread
        temporary = path + (".tmp" if is_here else ".deferred.tmp")  # both may replace it at once
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        try:
            fd = os.open(temporary, flags, 0o644)
        except FileNotFoundError:
            os.makedirs(folder, exist_ok=True)
            self._sync_later(None, os.path.dirname(folder))
            fd = os.open(temporary, flags, 0o644)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(fd, rest) :]
            os.rename(temporary, path)
        finally:
            os.close(fd)
        self._sync_later(path, folder)

    def rename(self, source: str, target: str) -> None:
        """Rename a file or folder; the fsync is deferred on the loop."""
        if not self._is_deferred():
            super().rename(source, target)
            return
        os.rename(source, target)
        self._sync_later(None, os.path.dirname(target))

    def _is_deferred(self) -> bool:
        if self._is_stopping.is_set():
            return False
        is_on_loop = threading.get_ident() == self._loop_thread
        return is_on_loop or getattr(self._thread, "is_deferred", False)

    def _sync_later(self, path: str | None, folder: str) -> None:
        with self._lock:
            is_first = not self._folders
            self._folders.add(folder)
            if path is not None:
                self._files.add(path)
        if is_first:
            self._job = self._pool.submit(self._sync)

    def _sync(self) -> None:
        self._hurried.wait(self._gather_s)
        with self._lock:
            self._hurried.clear()
            files, self._files = self._files, set()
            folders, self._folders = self._folders, set()
        for path in sorted(files):
            self._fsync(path, os.O_RDONLY)
        for folder in sorted(folders):
            self._fsync(folder, os.O_RDONLY | os.O_DIRECTORY)
