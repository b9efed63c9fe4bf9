"""The disk of one broker: what a process writes, and what of it a power loss leaves.

Data behind the last fsync of a file is torn off somewhere (`MemoryFiles.crash`). Names live in a
journal, as in ext4: creations, renames and removals become durable in order, all at once at the
next fsync of anything; a power loss undoes the last of them. A disk that lies (`loses_fsyncs`)
makes nothing durable. A process may also be killed between two accesses (`kill_after`).
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from random import Random

from headwater.testing.clocks import SeededEntropy
from headwater.testing.memory_files import FileData, MemoryFile, MemoryFiles
from sim.loop import KilledError, ProcessLoop, Scheduler

LATE_S = 0.3
"""`runtime.deferred_fsync.GATHER_S`: how long a late change waits for its fsync."""

Undo = Callable[[], None]


class Disk(MemoryFiles):
    """`headwater_broker.app.environment.DeferredFsync`; survives the processes that use it."""

    def __init__(self, scheduler: Scheduler, random: Random) -> None:
        super().__init__(SeededEntropy(random.getrandbits(64)))
        self.kill_after: int | None = None
        """The process dies at the access after so many more."""
        self.owner: ProcessLoop | None = None
        self.is_on_loop: Callable[[], bool] = lambda: True
        self._scheduler = scheduler
        self._random = random
        self._journal: list[Undo] = []
        self._is_settled = False
        self._is_late_job = False
        self.given_back: set[str] = set()
        """Folders that were renamed or removed on a disk that lied, until it lost power."""

    @property
    def is_named(self) -> bool:
        """Some broker has written its name on it."""
        return any(name.endswith("/meta.properties") for name in self._nodes)

    # -- processes

    def taken_by(self, loop: ProcessLoop, is_on_loop: Callable[[], bool]) -> None:
        """Another process works with this disk now; locks of the dead are gone."""
        self.owner = loop
        self.is_on_loop = is_on_loop
        self.kill_after = None
        self.release()

    def release(self) -> None:
        """The process is gone; the page cache is not."""
        self._locks.clear()
        self._is_settled = self._is_late_job = False

    def check(self, path: str, appended: int) -> None:
        """As the double does; and the moment may have come."""
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
        """Names of the last moment are undone, loose data is torn off."""
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
        """All names so far are kept."""
        self._commit()

    def run_deferred(self, job: Callable[[], None]) -> None:
        """A job of the loop in a thread."""
        self._is_late_job = True
        try:
            job()
        finally:
            self._is_late_job = False

    def sync_all(self) -> None:
        """From now on nothing is late."""
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
        """Open or create; a new name is in the journal until the next fsync."""
        self.check(path, 0)
        if path not in self._nodes:
            if must_exist:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            self._journal.append(lambda: self._drop(path))
        return _SyncedFile(self, path, self._nodes.setdefault(path, FileData()))

    def write_atomic(self, path: str, data: bytes) -> None:
        """Replace; on the loop durable a moment later."""
        before = self._nodes.get(path)
        super().write_atomic(path, data)
        self._journal.append(lambda: self._put_back(path, before))
        self._sync_names()

    def rename(self, source: str, target: str) -> None:
        """Rename; on the loop durable a moment later."""
        replaced = {n: v for n, v in self._nodes.items() if _is_below(n, target)}
        super().rename(source, target)

        def undo() -> None:
            for name in [n for n in self._nodes if _is_below(n, target)]:
                self._nodes[source + name[len(target) :]] = self._nodes.pop(name)
            self._nodes.update(replaced)

        self._journal.append(undo)
        self._sync_names()

    def remove(self, path: str) -> None:
        """Remove; durable with the next fsync of anything."""
        gone = {n: v for n, v in self._nodes.items() if _is_below(n, path)}
        super().remove(path)
        if gone:
            self._journal.append(lambda: self._nodes.update(gone))

    def synced(self) -> None:
        """Some file was fsynced: the journal with it."""
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
