"""Delayed operations on partitions: acks=all produce, DeleteRecords, and what each one watches.

An operation waits in a purgatory until an offset of a partition has risen far enough (high
watermark, last stable offset, log end, low watermark), until leadership changes, or until its
timeout; `Partition.outcome` tells an acks=all produce its end. `PartitionWatches` joins the
callbacks of `Partition` with the purgatories; a partition that nothing waits for has no callbacks
set, so its appends pay nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from headwater.errors import ErrorCode
from headwater_broker.purgatory.purgatory import DelayedOperation, Purgatory, WatchedOffset
from headwater_broker.replica.partition import Partition

LiveBrokers = Callable[[], Container[int]]
"""The ids of the live brokers, as this broker's metadata cache knows them."""


class PartitionWatch:
    """The watched offsets of one partition."""

    __slots__ = ("fetch_committed", "fetch_end", "fetch_stable", "low_watermark", "produce")

    def __init__(self, partition: Partition, purgatories: Purgatories) -> None:
        fetch = purgatories.fetch
        self.produce = WatchedOffset(purgatories.produce, lambda: partition.high_watermark)
        self.fetch_committed = WatchedOffset(fetch, lambda: partition.high_watermark)
        self.fetch_stable = WatchedOffset(fetch, lambda: partition.last_stable_offset)
        self.fetch_end = WatchedOffset(fetch, lambda: partition.log.log_end_offset)
        self.low_watermark: WatchedOffset | None = None

    def high_watermark_moved(self, partition: Partition) -> None:
        """`Partition.on_hw`: the last stable offset moves with the high watermark."""
        if self.produce or self.fetch_committed or self.fetch_stable:
            self.produce.moved()
            self.fetch_committed.moved()
            self.fetch_stable.moved()
        else:
            partition.on_hw = None

    def log_end_moved(self, partition: Partition) -> None:
        """`Partition.on_append`."""
        if self.fetch_end:
            self.fetch_end.moved()
        else:
            partition.on_append = None

    def low_watermark_moved(self, partition: Partition) -> None:
        """`Partition.on_low_watermark`."""
        if self.low_watermark:
            self.low_watermark.moved()
        else:
            partition.on_low_watermark = self.low_watermark = None

    def leadership_changed(self) -> None:
        """Every operation of this partition is tried again, whatever its offset."""
        self.produce.all_moved()
        self.fetch_committed.all_moved()
        self.fetch_stable.all_moved()
        self.fetch_end.all_moved()
        if self.low_watermark is not None:
            self.low_watermark.all_moved()


class PartitionWatches:
    """The partitions of this broker that operations wait for."""

    def __init__(self, purgatories: Purgatories) -> None:
        self._purgatories = purgatories
        self._watches: dict[Partition, PartitionWatch] = {}

    def __len__(self) -> int:
        return len(self._watches)

    def high_watermark(self, partition: Partition) -> WatchedOffset:
        """The high watermark, for acks=all."""
        watch = self._of(partition)
        partition.on_hw = watch.high_watermark_moved
        return watch.produce

    def low_watermark(self, partition: Partition) -> WatchedOffset:
        """The lowest log start offset of the live replicas, for DeleteRecords."""
        watch, live_brokers = self._of(partition), self._purgatories.live_brokers
        if watch.low_watermark is None:
            watch.low_watermark = WatchedOffset(
                self._purgatories.delete_records, lambda: partition.low_watermark(live_brokers())
            )
        partition.on_low_watermark = watch.low_watermark_moved
        return watch.low_watermark

    def read_bound(
        self, partition: Partition, *, is_follower: bool, committed: bool
    ) -> WatchedOffset:
        """The offset that a fetch reads up to: log end, high watermark or last stable offset."""
        watch = self._of(partition)
        if is_follower:
            partition.on_append = watch.log_end_moved
            return watch.fetch_end
        partition.on_hw = watch.high_watermark_moved
        return watch.fetch_stable if committed else watch.fetch_committed

    def leadership_changed(self, partition: Partition) -> None:
        """`Partition.on_leadership`: an operation that goes on waiting watches anew."""
        watch = self._watches.pop(partition, None)
        if watch is not None:
            partition.on_hw = partition.on_append = partition.on_low_watermark = None
            watch.leadership_changed()

    def live_brokers_changed(self) -> None:
        """The low watermark counts live replicas only: a dead broker may have held it back."""
        for watch in self._watches.values():
            if watch.low_watermark is not None:
                watch.low_watermark.moved()

    def _of(self, partition: Partition) -> PartitionWatch:
        watch = self._watches.get(partition)
        if watch is None:
            watch = self._watches[partition] = PartitionWatch(partition, self._purgatories)
        return watch


class Purgatories:
    """The delayed operations of this broker, by kind."""

    __slots__ = ("delete_records", "fetch", "live_brokers", "produce", "watches")

    def __init__(self, loop: asyncio.AbstractEventLoop, live_brokers: LiveBrokers) -> None:
        self.live_brokers = live_brokers
        self.produce = Purgatory(loop)
        """acks=all, and coordinators: the high watermark."""
        self.fetch = Purgatory(loop)
        """min_bytes: log end, high watermark or last stable offset."""
        self.delete_records = Purgatory(loop)
        """DeleteRecords: the low watermark."""
        self.watches = PartitionWatches(self)

    @property
    def has_due_operations(self) -> bool:
        """True when an offset has moved and its operations are not tried yet."""
        return self.fetch.has_due_operations or self.produce.has_due_operations


class AwaitedCommit(Protocol):
    """One append whose replication is awaited."""

    partition: Partition | None
    """None: nothing was appended, `code` says why."""
    last_offset: int
    leader_epoch: int
    """Leader epoch of the append."""
    code: ErrorCode | None
    """The outcome; None while it is open."""
    watched: WatchedOffset | None


C = TypeVar("C", bound=AwaitedCommit)


def any_pending(commits: Sequence[AwaitedCommit]) -> bool:
    """Set the code of each commit that has an outcome by now; True while one has none."""
    pending = False
    for commit in commits:
        if commit.partition is not None:
            commit.code = commit.partition.outcome(commit.last_offset, commit.leader_epoch)
            pending |= commit.code is None
    return pending


class DelayedProduce(DelayedOperation, Generic[C]):
    """Waits until the high watermark has passed the last offset of every append (acks=all)."""

    __slots__ = ("_commits", "_purgatories")

    def __init__(self, purgatories: Purgatories, commits: Sequence[C]) -> None:
        super().__init__()
        self._purgatories = purgatories
        self._commits: Sequence[C] = commits

    def completed(self, commits: Sequence[C]) -> None:
        """Called once, when every commit has its code, or (code None) at the timeout."""
        raise NotImplementedError

    def start(self, timeout_ms: int) -> None:
        """Wait for every commit without a code."""
        purgatories = self._purgatories
        purgatories.produce.park(self, max(timeout_ms, 0))
        for commit in self._commits:
            if commit.code is None and commit.partition is not None:
                commit.watched = purgatories.watches.high_watermark(commit.partition)
                commit.watched.add(commit.last_offset + 1, self)

    def try_complete(self, watched: WatchedOffset) -> None:
        """A high watermark has passed, or leadership has changed."""
        pending = False
        for commit in self._commits:
            if commit.code is None and commit.partition is not None:
                commit.code = commit.partition.outcome(commit.last_offset, commit.leader_epoch)
                if commit.code is None:
                    pending = True
                    if commit.watched is watched:
                        watches = self._purgatories.watches
                        commit.watched = watches.high_watermark(commit.partition)
                        commit.watched.add(commit.last_offset + 1, self)
        if not pending and self._purgatories.produce.complete(self):
            self.completed(self._take_commits())

    def on_expiration(self) -> None:
        """The timeout has passed: commits without a code are not replicated."""
        self.completed(self._take_commits())

    def cancel(self) -> None:
        """Nothing waits for the outcome any more. The records stay in the log."""
        if self._purgatories.produce.complete(self):
            self._commits = ()

    def _take_commits(self) -> Sequence[C]:
        """A watched offset may hold on to a finished operation for a while: not to its commits."""
        commits, self._commits = self._commits, ()
        return commits


@dataclass(slots=True, eq=False)
class RecordDeletion:
    """One partition of a DeleteRecords request: its log start was moved to `target`."""

    partition: Partition
    target: int
    code: ErrorCode | None = None
    """The outcome; None while a live replica's log starts below `target`."""
    low_watermark: int = -1
    watched: WatchedOffset | None = None


class DelayedDeleteRecords(DelayedOperation):
    """Waits until the log of every live replica starts at the target of its partition (KIP-107)."""

    __slots__ = ("_purgatories", "deletions", "done_future")

    def __init__(self, purgatories: Purgatories, deletions: Sequence[RecordDeletion]) -> None:
        super().__init__()
        self._purgatories = purgatories
        self.deletions = deletions
        self.done_future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def wait(self, timeout_ms: int) -> None:
        """Return when every deletion has its code; those that are late get REQUEST_TIMED_OUT."""
        if self._any_pending(None):
            self._purgatories.delete_records.park(self, max(timeout_ms, 0))
            try:
                await self.done_future
            finally:
                self._purgatories.delete_records.complete(self)
        for deletion in self.deletions:
            if deletion.code is None:
                deletion.code = ErrorCode.REQUEST_TIMED_OUT

    def try_complete(self, watched: WatchedOffset) -> None:
        """A low watermark has moved, or leadership has changed."""
        if not self._any_pending(watched) and self._purgatories.delete_records.complete(self):
            self._end(None)

    def on_expiration(self) -> None:
        """The timeout has passed."""
        for deletion in self.deletions:
            if deletion.code is None:
                self._read(deletion)
        self._end(None)

    def on_failure(self, error: Exception) -> None:
        """The request ends with the error."""
        self._end(error)

    def _any_pending(self, watched: WatchedOffset | None) -> bool:
        pending = False
        for deletion in self.deletions:
            if deletion.code is None:
                self._read(deletion)
            if deletion.code is None:
                pending = True
                if deletion.watched is watched:
                    deletion.watched = self._purgatories.watches.low_watermark(deletion.partition)
                    deletion.watched.add(deletion.target, self)
        return pending

    def _read(self, deletion: RecordDeletion) -> None:
        partition = deletion.partition
        if not partition.is_leader:
            deletion.low_watermark, deletion.code = -1, ErrorCode.NOT_LEADER_OR_FOLLOWER
            return
        deletion.low_watermark = partition.low_watermark(self._purgatories.live_brokers())
        if deletion.low_watermark >= deletion.target:
            deletion.code = ErrorCode.NONE

    def _end(self, error: Exception | None) -> None:
        if self.done_future.done():
            return
        if error is None:
            self.done_future.set_result(None)
        else:
            self.done_future.set_exception(error)
