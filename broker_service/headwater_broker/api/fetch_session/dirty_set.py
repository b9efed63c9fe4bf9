"""The dirty partitions of a follower's fetch session: a fetch reads only these, not all of them.

A follower's session may hold thousands of partitions of which a few are busy. One whose follower
has all there is, and was told its marks, is passed by: it is registered with the partition
(`Partition.caught_up_followers`), and is *due* again once something moves there. A fetch goes over
what is due. A fetch that parks waits for the session, not for each of its partitions.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from headwater_broker.api.fetch_session.partition import FetchItem
from headwater_broker.purgatory.purgatory import DelayedOperation, Purgatory, WatchedOffset
from headwater_broker.replica.partition import Partition


class Passing:
    """One partition of a session, as registered with the partition."""

    __slots__ = ("_item", "_moves", "_partition", "_replica_id")

    def __init__(self, moves: SessionMoves, item: FetchItem, partition: Partition) -> None:
        self._moves = moves
        self._item = item
        self._partition = partition
        self._replica_id = moves.replica[0]
        partition.caught_up_followers.put(self._replica_id, self)

    def wake(self) -> None:
        """See `CaughtUpFollower`."""
        self._moves.passing.pop(self._item, None)
        self._settle()
        self._moves.wake(self._item)

    def state_updated(self) -> None:
        """See `CaughtUpFollower`."""
        self._settle()
        self._moves.due[self._item] = None

    def withdraw(self) -> None:
        """The session does not pass this partition by any more."""
        self._partition.caught_up_followers.drop(self._replica_id, self)
        self._settle()

    def _settle(self) -> None:
        """What each fetch would have told that passed this by, its leader learns now."""
        role = self._partition.leader_state
        if role is not None and self._item not in self._moves.due:
            role.record_skipped_fetches(
                self._replica_id, self._item.fetch_offset, self._moves.fetched_at
            )


class SessionMoves:
    """What is due in one session of a follower.

    `replica`: the follower's id and broker epoch; `fetched_at`: when its last fetch came, monotonic
    seconds; `due`: in the order in which they are served.
    """

    __slots__ = ("_gauge", "_moved", "due", "fetched_at", "passing", "replica")

    def __init__(self, replica: tuple[int, int], items: Iterable[FetchItem], purgatory: Purgatory):
        self.replica = replica
        self.due: dict[FetchItem, None] = dict.fromkeys(items)
        self.passing: dict[FetchItem, Passing] = {}
        self.fetched_at = -inf
        self._moved = 0
        self._gauge = WatchedOffset(purgatory, lambda: self._moved)

    # -- a fetch comes

    def name(self, item: FetchItem) -> None:
        """The fetch names it, or its sender has changed: before what it asks is taken over."""
        self.forget(item)
        self.due[item] = None

    def forget(self, item: FetchItem) -> None:
        """The session has it no more."""
        passing = self.passing.pop(item, None)
        if passing is not None:
            passing.withdraw()
        self.due.pop(item, None)

    def fetched_by(self, replica: tuple[int, int], now: float) -> None:
        """The fetch has been taken over: it counts for all that is passed by."""
        if replica != self.replica:
            for item in list(self.passing):
                self.name(item)
            self.replica = replica
        self.fetched_at = now

    # -- it was looked at

    def keep(self, item: FetchItem, partition: Partition) -> None:
        """It is passed by, or stays due but wakes a fetch that parks."""
        log, role = partition.log, partition.leader_state
        if role is None:
            return
        if item not in self.passing:
            self.passing[item] = Passing(self, item, partition)
        if (
            item.sent_high_watermark == partition.high_watermark
            and item.sent_log_start == log.log_start_offset
            and role.is_fully_caught_up(
                self.replica[0], item.fetch_offset, log.log_end_offset, partition.high_watermark
            )
        ):
            self.due.pop(item, None)

    def rotate(self, item: FetchItem) -> None:
        """It gave data: behind the others."""
        if item in self.due:
            del self.due[item]
            self.due[item] = None

    # -- it is parked

    def wait(self, waiter: DelayedOperation) -> None:
        """Wake `waiter` when something stirs from now on."""
        self._gauge.add(self._moved + 1, waiter)

    def wake(self, item: FetchItem) -> None:
        """There may be data, or an error to tell."""
        self.due[item] = None
        self._moved += 1
        self._gauge.moved()
