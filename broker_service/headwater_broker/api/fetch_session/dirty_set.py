"""The dirty partitions of a follower's fetch session: a fetch reads only these, not all of them.

A follower's session may hold thousands of partitions of which a few are busy. A partition is clean
when its follower has all records, and the last response carried its high watermark and log start
offset. The session is registered with such a partition (`Partition.caught_up_followers`), and the
next change there makes it *due* again. A fetch reads the due partitions; a parked fetch waits for
the session, not for each of its partitions.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from headwater_broker.api.fetch_session.partition import FetchItem
from headwater_broker.purgatory.purgatory import DelayedOperation, Purgatory, WatchedOffset
from headwater_broker.replica.partition import Partition


class CaughtUpEntry:
    """A session's entry in the `caught_up_followers` of one partition."""

    __slots__ = ("_dirty", "_item", "_partition", "_replica_id")

    def __init__(self, dirty: DirtyPartitions, item: FetchItem, partition: Partition) -> None:
        self._dirty = dirty
        self._item = item
        self._partition = partition
        self._replica_id = dirty.replica[0]
        partition.caught_up_followers.put(self._replica_id, self)

    def wake(self) -> None:
        """See `CaughtUpFollower`."""
        self._dirty.caught_up.pop(self._item, None)
        self._settle()
        self._dirty.wake(self._item)

    def state_updated(self) -> None:
        """See `CaughtUpFollower`."""
        self._settle()
        self._dirty.due[self._item] = None

    def withdraw(self) -> None:
        """Remove the entry from its partition."""
        self._partition.caught_up_followers.drop(self._replica_id, self)
        self._settle()

    def _settle(self) -> None:
        """Record the fetches that skipped this partition: the ISR rules need their times."""
        role = self._partition.leader_state
        if role is not None and self._item not in self._dirty.due:
            role.record_skipped_fetches(
                self._replica_id, self._item.fetch_offset, self._dirty.fetched_at
            )


class DirtyPartitions:
    """The due partitions of one follower's session.

    `replica`: the follower's id and broker epoch; `fetched_at`: time of its last fetch, monotonic
    seconds; `due`: in the order of the next response.
    """

    __slots__ = ("_gauge", "_moved", "caught_up", "due", "fetched_at", "replica")

    def __init__(self, replica: tuple[int, int], items: Iterable[FetchItem], purgatory: Purgatory):
        self.replica = replica
        self.due: dict[FetchItem, None] = dict.fromkeys(items)
        self.caught_up: dict[FetchItem, CaughtUpEntry] = {}
        self.fetched_at = -inf
        self._moved = 0
        self._gauge = WatchedOffset(purgatory, lambda: self._moved)

    # -- when a fetch arrives

    def mark_dirty(self, item: FetchItem) -> None:
        """Make a partition due that the fetch names; call it before `FetchItem.update`."""
        self.forget(item)
        self.due[item] = None

    def forget(self, item: FetchItem) -> None:
        """Drop a partition that left the session."""
        entry = self.caught_up.pop(item, None)
        if entry is not None:
            entry.withdraw()
        self.due.pop(item, None)

    def fetched_by(self, replica: tuple[int, int], now: float) -> None:
        """Record a fetch: it counts for clean partitions, too. A restarted follower has none."""
        if replica != self.replica:
            for item in list(self.caught_up):
                self.mark_dirty(item)
            self.replica = replica
        self.fetched_at = now

    # -- after a read

    def mark_read(self, item: FetchItem, partition: Partition) -> None:
        """Register a partition that was read without records. It is no longer due if it is clean;
        else it wakes the session's parked fetch at its next change."""
        log, role = partition.log, partition.leader_state
        if role is None:
            return
        if item not in self.caught_up:
            self.caught_up[item] = CaughtUpEntry(self, item, partition)
        if (
            item.sent_high_watermark == partition.high_watermark
            and item.sent_log_start == log.log_start_offset
            and role.is_fully_caught_up(
                self.replica[0], item.fetch_offset, log.log_end_offset, partition.high_watermark
            )
        ):
            self.due.pop(item, None)

    def rotate(self, item: FetchItem) -> None:
        """Move a partition that returned records behind the others."""
        if item in self.due:
            del self.due[item]
            self.due[item] = None

    # -- while a fetch is parked

    def wait(self, waiter: DelayedOperation) -> None:
        """Wake `waiter` at the next change of a registered partition."""
        self._gauge.add(self._moved + 1, waiter)

    def wake(self, item: FetchItem) -> None:
        """A partition has changed: it may have records or an error."""
        self.due[item] = None
        self._moved += 1
        self._gauge.moved()
