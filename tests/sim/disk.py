"""The disk of one broker, with power losses and lost fsyncs.

A power loss tears off the data after a file's last fsync at a random place (`MemoryFiles.crash`).
Names are in a journal, as in ext4: creations, renames and removals become durable in order, all of
them at the next fsync of any file; a power loss undoes the others. A disk that loses fsyncs
(`loses_fsyncs`) makes nothing durable. A process may also be killed between two accesses
(`kill_after`).
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from random import Random

from headwater.testing.clocks import SeededEntropy
from headwater.testing.memory_files import FileData, MemoryFile, MemoryFiles
from sim.loop import KilledError, ProcessLoop, Scheduler

LATE_S = 0.3
"""How long a deferred change waits for its fsync, as `runtime.deferred_fsync.GATHER_S`."""

Undo = Callable[[], None]


class Disk(MemoryFiles):
    """`headwater_broker.app.environment.DeferredFsync`. It survives the processes that use it."""

    def __init__(self, scheduler: Scheduler, random: Random) -> None:
        super().__init__(SeededEntropy(random.getrandbits(64)))
        self.kill_after: int | None = None
        """The process is killed after so many more accesses."""
        self.owner: ProcessLoop | None = None
        self.is_on_loop: Callable[[], bool] = lambda: True
        self._scheduler = scheduler
        self._random = random
        self._journal: list[Undo] = []
        self._is_settled = False
        self._is_late_job = False
        self.given_back: set[str] = set()
        """Folders that were renamed or removed while the disk lost fsyncs, and are back."""

    @property
    def is_named(self) -> bool:
        """Whether a broker has written meta.properties."""
        return any(name.endswith("/meta.properties") for name in self._nodes)

    # -- processes

    def taken_by(self, loop: ProcessLoop, is_on_loop: Callable[[], bool]) -> None:
        """Another process uses this disk now. Locks of dead processes are gone."""
        self.owner = loop
        self.is_on_loop = is_on_loop
        self.kill_after = None
        self.release()

    def release(self) -> None:
        """The process is gone, but not the page cache."""
        self._locks.clear()
        self._is_settled = self._is_late_job = False

    def check(self, path: str, appended: int) -> None:
        """Raise the faults of the double, and kill the process if it is time."""
        owner = self.owner
        if owner is not None:
            if owner.is_dead:
                raise KilledError(path)
            if self.kill_after is not None:
                self.kill_after -= 1
                if self.kill_after < 0:
                    self.kill_after = None
                    owner.on_kill()
                    raise KilledError(path)
        super().check(path, appended)

    def lose_power(self) -> None:
        """Undo names that are not durable, and tear off data that is not."""
        self.owner = None
        keep = 0 if self.loses_fsyncs else self._random.randint(0, len(self._journal))
        before = self._folders()
        for undo in reversed(self._journal[keep:]):
            undo()
        self._journal.clear()
        if self.loses_fsyncs:
            self.given_back |= self._folders() - before
        self.loses_fsyncs = False
        self.crash()
        self.release()

    def _folders(self) -> set[str]:
        return {name.rpartition("/")[0] for name in self._nodes}

    # -- DeferredFsync

    async def durable(self) -> None:
        """Make all names so far durable."""
        self._commit()

    def run_deferred(self, job: Callable[[], None]) -> None:
        """Run a job of the loop in a thread."""
        self._is_late_job = True
        try:
            job()
        finally:
            self._is_late_job = False

    def sync_all(self) -> None:
        """Sync every change at once from now on."""
        self._is_settled = True
        self._commit()

    def _sync_names(self) -> None:
        is_late = (self.is_on_loop() or self._is_late_job) and not self._is_settled
        if not is_late:
            self._commit()
        else:
            until = len(self._journal)
            journal = self._journal
            self._scheduler.later(LATE_S, lambda: self._commit_late(journal, until))

    def _commit_late(self, journal: list[Undo], until: int) -> None:
        if journal is self._journal and len(journal) >= until:
            self._commit()

    def _commit(self) -> None:
        if not self.loses_fsyncs:
            self._journal = []

    # -- Files

    def open(self, path: str, *, must_exist: bool = False) -> MemoryFile:
        """Open or create a file. A new name is durable after the next fsync."""
        self.check(path, 0)
        if path not in self._nodes:
            if must_exist:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            self._journal.append(lambda: self._drop(path))
        return _SyncedFile(self, path, self._nodes.setdefault(path, FileData()))

    def write_atomic(self, path: str, data: bytes) -> None:
        """Replace a file. On the loop it becomes durable a moment later."""
        before = self._nodes.get(path)
        super().write_atomic(path, data)
        self._journal.append(lambda: self._put_back(path, before))
        self._sync_names()

    def rename(self, source: str, target: str) -> None:
        """Rename a file or folder. On the loop it becomes durable a moment later."""
        replaced = {n: v for n, v in self._nodes.items() if _is_below(n, target)}
        super().rename(source, target)

        def undo() -> None:
            for name in [n for n in self._nodes if _is_below(n, target)]:
                self._nodes[source + name[len(target) :]] = self._nodes.pop(name)
            self._nodes.update(replaced)

        self._journal.append(undo)
        self._sync_names()

    def remove(self, path: str) -> None:
        """Remove a file or folder; durable after the next fsync."""
        gone = {n: v for n, v in self._nodes.items() if _is_below(n, path)}
        super().remove(path)
        if gone:
            self._journal.append(lambda: self._nodes.update(gone))

    def synced(self) -> None:
        """A file was fsynced, and the journal with it."""
        self._commit()

    def _drop(self, path: str) -> None:
        self._nodes.pop(path, None)

    def _put_back(self, path: str, before: FileData | None) -> None:
        if before is None:
            self._nodes.pop(path, None)
        else:
            self._nodes[path] = before


class _SyncedFile(MemoryFile):
    def fsync(self) -> None:
        super().fsync()
        assert isinstance(self._owner, Disk)
        self._owner.synced()


def _is_below(name: str, path: str) -> bool:
    return name == path or name.startswith(path + "/")
