"""ISR rules of a leader: which followers are in sync (KIP-497, KIP-903). Pure.

The *maximal* ISR is the committed ISR plus a proposed one that the controller has not answered:
the high watermark and acks count both, because either may turn out to be in force.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

UNKNOWN_OFFSET = -1
UNKNOWN_EPOCH = -1


class FollowerProgress:
    """One follower, as seen by the leader. Times are monotonic seconds."""

    __slots__ = (
        "broker_epoch",
        "caught_up_at",
        "fetched_at",
        "gap_s",
        "leader_end_at_fetch",
        "log_end_offset",
        "log_start_offset",
        "pace_s",
        "replica_id",
    )

    def __init__(self, replica_id: int) -> None:
        self.replica_id = replica_id
        self.reset(now=-inf, in_sync=False)

    def reset(self, now: float, *, in_sync: bool) -> None:
        """A new leader epoch: nothing is known; an ISR member gets the full lag time."""
        self.log_end_offset = UNKNOWN_OFFSET
        self.log_start_offset = UNKNOWN_OFFSET
        self.broker_epoch = UNKNOWN_EPOCH
        self.leader_end_at_fetch = 0
        self.left_isr()
        self.caught_up_at = now if in_sync else -inf

    def left_isr(self) -> None:
        """Not in the ISR (any more): nothing waits for this follower until it fetches again."""
        self.caught_up_at = self.fetched_at = -inf
        self.gap_s = self.pace_s = 0.0
        """Time between the last two fetches; the shorter of the last two such times, as a single
        pause is no habit."""

    def fetched(self, fetch_offset: int, leader_end: int, now: float) -> None:
        """The follower fetches from `fetch_offset`: its log holds every record before.

        It is caught up now if that is the leader's log end; it was caught up at its previous fetch
        if its log now reaches the leader's log end of that time.
        """
        if fetch_offset >= leader_end:
            self.caught_up_at = now
        elif fetch_offset >= self.leader_end_at_fetch and self.fetched_at > self.caught_up_at:
            self.caught_up_at = self.fetched_at
        gap = now - self.fetched_at
        self.pace_s = min(gap, self.gap_s)
        self.gap_s = 0.0 if gap == inf else gap
        self.fetched_at = now
        self.leader_end_at_fetch = leader_end
        self.log_end_offset = fetch_offset

    def caught_up(self, leader_end: int, now: float, lag_max_s: float) -> bool:
        """True at the leader's log end, or if it was there within the lag time."""
        return self.log_end_offset == leader_end or now - self.caught_up_at <= lag_max_s


def maximal(members: Iterable[int], pending: Iterable[int] | None) -> frozenset[int]:
    """The committed ISR plus the proposed one."""
    return frozenset(members) | frozenset(pending or ())


def may_join(progress: FollowerProgress, high_watermark: int, epoch_start: int) -> bool:
    """True when a follower may be proposed for the ISR: its log end is at or above the high
    watermark and the start of the leader epoch.

    The second condition (KAFKA-7128): right after an election the high watermark may lag behind
    the records that the previous leader acknowledged; the start of the epoch does not.
    """
    end = progress.log_end_offset
    return end != UNKNOWN_OFFSET and end >= high_watermark and end >= epoch_start


def out_of_sync(
    members: Iterable[int],
    progress: dict[int, FollowerProgress],
    leader_end: int,
    now: float,
    lag_max_s: float,
) -> tuple[int, ...]:
    """The ISR members to propose for removal, in the order of the ISR.

    The leader has no progress row, so it is never among them.
    """
    return tuple(
        member
        for member in members
        if member in progress and not progress[member].caught_up(leader_end, now, lag_max_s)
    )


def expanded(members: tuple[int, ...], replica_id: int) -> tuple[int, ...]:
    """The ISR plus one member."""
    return members if replica_id in members else (*members, replica_id)


def shrunk(members: tuple[int, ...], gone: Iterable[int]) -> tuple[int, ...]:
    """The ISR without `gone`. Raises ValueError when nothing would be left."""
    lost = frozenset(gone)
    left = tuple(member for member in members if member not in lost)
    if not left:
        raise ValueError(f"removing {sorted(lost)} would leave the ISR {members} empty")
    return left


def below_min_isr(isr_size: int, min_insync_replicas: int, replica_count: int) -> bool:
    """True when acks=all is to be rejected; a topic with fewer replicas needs only those."""
    return isr_size < min(min_insync_replicas, replica_count)
