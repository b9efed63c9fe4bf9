"""What a leader knows of its followers and its ISR. Pure: no log, no clock, no calls."""

from __future__ import annotations

from enum import Enum

from headwater.errors import ErrorCode
from headwater.wire.control import AlterPartitionItem, AlterPartitionResult, IsrMember
from headwater_broker.replica import isr as rules
from headwater_broker.replica.high_watermark import leader_high_watermark
from headwater_broker.replica.isr import UNKNOWN_EPOCH, FollowerProgress

JOIN_WAIT_S = 1.0
"""The high watermark waits for a follower about to join only while it fetches this often: it may
be shutting down, and nobody would tell. One that is slower as a habit is given two of its own
intervals: the watermark would else be ahead of it at each fetch, for ever.
"""
_NOT_APPLIED = frozenset(
    {
        ErrorCode.INELIGIBLE_REPLICA,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.REASSIGNMENT_IN_PROGRESS,
    }
)
"""Refusals after which the proposal is certainly not in force: drop it."""
_AWAIT_CONTROLLER = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.NEW_LEADER_ELECTED,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.INVALID_REQUEST,
    }
)
"""Refusals that say that the controller has moved on: a LeaderAndIsr or StopReplica is coming."""


class Answer(Enum):
    """What the controller's answer to a proposal means."""

    INSTALL = "it tells what is in force"
    AGAIN = "the same proposal is to be sent again"
    NOTHING = "settled, overtaken, or a LeaderAndIsr will tell"


class LeaderState:
    """One leadership: leader epoch, followers' progress, committed and proposed ISR."""

    __slots__ = (
        "awaiting_controller",
        "began",
        "counted",
        "epoch_start",
        "leader_epoch",
        "members",
        "own_id",
        "partition_epoch",
        "pending",
        "pending_epochs",
        "progress",
        "propose_after",
        "replicas",
        "sole",
        "waiting",
    )

    def __init__(self, own_id: int, leader_epoch: int, epoch_start: int) -> None:
        self.own_id = own_id
        self.leader_epoch = leader_epoch
        self.epoch_start = epoch_start
        self.began: float | None = None
        """When, in monotonic seconds."""
        self.partition_epoch = -1
        self.replicas: tuple[int, ...] = ()
        self.members: tuple[int, ...] = ()
        self.pending: tuple[int, ...] | None = None
        self.pending_epochs: tuple[tuple[int, int], ...] = ()
        """Of the proposed members: under which broker epoch each was found to be in sync."""
        self.awaiting_controller = False
        self.propose_after = 0.0
        self.progress: dict[int, FollowerProgress] = {}
        self.counted: list[FollowerProgress] = []
        """Followers in the maximal ISR: the high watermark waits for each."""
        self.waiting: list[FollowerProgress] = []
        """The other followers: the high watermark waits for those about to join."""
        self.sole = False
        """True when nobody else has a replica: the high watermark is the log end."""

    def install(
        self,
        replicas: tuple[int, ...],
        members: tuple[int, ...],
        partition_epoch: int,
        now: float,
        *,
        settles: bool = True,
    ) -> None:
        """Take the controller's committed state. A proposal of ours is settled by it, unless it is
        the very state that the proposal was made in: then both may turn out to be true."""
        if self.began is None:
            self.began = now
        fresh = {
            replica: self.progress.get(replica) or self._new_progress(replica, members, now)
            for replica in dict.fromkeys((*replicas, *members))
            if replica != self.own_id
        }
        for member in self.members:
            if member not in members and member in fresh:
                fresh[member].left()
        self.progress = fresh
        self.replicas = replicas
        self.members = members
        self.partition_epoch = partition_epoch
        self.awaiting_controller = False
        if settles:
            self.pending = None
        self._regroup()

    def _new_progress(
        self, replica_id: int, members: tuple[int, ...], now: float
    ) -> FollowerProgress:
        progress = FollowerProgress(replica_id)
        progress.reset(now, in_sync=replica_id in members)
        return progress

    def _regroup(self) -> None:
        maximal = rules.maximal(self.members, self.pending)
        rows = self.progress.values()
        self.counted = [row for row in rows if row.replica_id in maximal]
        self.waiting = [row for row in rows if row.replica_id not in maximal]
        self.sole = not self.progress

    def high_watermark(self, current: int, leader_end: int, now: float, lag_max_s: float) -> int:
        """The high watermark now. Followers outside the ISR but caught up hold it too, or they
        could never catch it (Kafka: `shouldWaitForReplicaToJoinIsr`).
        """
        if not self.waiting:
            return leader_high_watermark(current, leader_end, self.counted)
        joining = [
            row
            for row in self.waiting
            if now - row.fetched_at <= max(JOIN_WAIT_S, min(2 * row.pace_s, lag_max_s))
            and row.caught_up(leader_end, now, lag_max_s)
        ]
        return leader_high_watermark(current, leader_end, [*self.counted, *joining])

    def join_proposal(
        self, row: FollowerProgress, high_watermark: int, now: float
    ) -> tuple[int, ...] | None:
        """The ISR to propose after `row` fetched, or None. One proposal at a time."""
        if (
            self.pending is not None
            or row.replica_id in self.members
            or now < self.propose_after
            or not rules.may_join(row, high_watermark, self.epoch_start)
        ):
            return None
        return rules.expanded(self.members, row.replica_id)

    def is_fully_caught_up(
        self, replica_id: int, offset: int, leader_end: int, high_watermark: int
    ) -> bool:
        """True when a fetch from `offset` by this follower would change nothing here, as long as
        nothing is appended and roles, ISR and watermark stay."""
        if offset != leader_end or self._level(replica_id, offset) is None:
            return False
        # Whoever is about to join holds the high watermark for a while: each fetch tries it.
        return not self.waiting or high_watermark == leader_end

    def in_sync_followers_at(self, offset: int) -> list[FollowerProgress]:
        """The members whose logs hold what is before `offset`, and it or their end."""
        return [
            row
            for row in self.progress.values()
            if row.replica_id in self.members
            and row.log_start_offset <= offset <= row.log_end_offset
        ]

    def record_skipped_fetches(self, replica_id: int, offset: int, at: float) -> None:
        """At `at` (`clock.monotonic()`) came the last of the fetches that this follower sent while
        `is_fully_caught_up` held: `offset` was the log's end then."""
        row = self._level(replica_id, offset)
        if row is not None and at > row.fetched_at:
            row.fetched(offset, offset, at)

    def _level(self, replica_id: int, offset: int) -> FollowerProgress | None:
        row = self.progress.get(replica_id)
        is_settled = self.pending is None and replica_id in self.members
        return row if is_settled and row is not None and row.log_end_offset == offset else None

    def shrink_proposal(
        self, leader_end: int, now: float, lag_max_s: float
    ) -> tuple[int, ...] | None:
        """The ISR to propose at a tick, or None."""
        if self.pending is not None or now < self.propose_after:
            return None
        gone = rules.out_of_sync(self.members, self.progress, leader_end, now, lag_max_s)
        return rules.shrunk(self.members, gone) if gone else None

    def asks_again(self) -> bool:
        """At a tick: the controller has told nothing since it fenced the proposal. One that did not
        know yet that it was deposed may have: nobody would tell, and members that are only proposed
        would hold the high watermark for ever."""
        was_awaiting, self.awaiting_controller = self.awaiting_controller, False
        return was_awaiting

    def propose(self, members: tuple[int, ...]) -> None:
        """A proposal is on its way: count its members from now on.

        However often it is sent, it names their lives of now: one that restarts meanwhile may have
        lost what it held (KIP-903), and is proposed anew when it has caught up again.
        """
        self.pending = members
        self.pending_epochs = tuple((member, self._epoch_of(member)) for member in members)
        self._regroup()

    def member_epochs(self, own_epoch: int) -> tuple[IsrMember, ...]:
        """The proposed members, each with the broker epoch it fetched under (KIP-903)."""
        return tuple(
            IsrMember(broker_id=member, broker_epoch=own_epoch if member == self.own_id else epoch)
            for member, epoch in self.pending_epochs
        )

    def _epoch_of(self, replica_id: int) -> int:
        row = self.progress.get(replica_id)
        return UNKNOWN_EPOCH if row is None else row.broker_epoch

    def answered(
        self, item: AlterPartitionItem, result: AlterPartitionResult, retry_at: float
    ) -> Answer:
        """What to make of the controller's answer to `item`. A refused proposal is made anew (or
        repeated) no sooner than `retry_at`, in monotonic seconds."""
        error = ErrorCode(result.error_code)
        if item.leader_epoch != self.leader_epoch:
            return Answer.NOTHING
        if error is not ErrorCode.NONE and not self._is_told_newer(result):
            if item.partition_epoch != self.partition_epoch or self.pending is None:
                return Answer.NOTHING  # LeaderAndIsr has overtaken the answer
            return self._refused(error, result, retry_at)
        if result.leader_epoch != self.leader_epoch or (
            result.partition_epoch < self.partition_epoch
        ):
            return Answer.NOTHING
        return Answer.INSTALL

    def _refused(self, error: ErrorCode, result: AlterPartitionResult, retry_at: float) -> Answer:
        """Until it is certain that the proposal is not in force, it stays pending."""
        self.propose_after = retry_at
        # Whoever judged it in the state that it was made in has not applied it before either.
        is_judged_here = error is ErrorCode.INVALID_REQUEST and self._is_told_same(result)
        if error in _NOT_APPLIED or is_judged_here:
            for row in self.waiting + self.counted:
                if row.replica_id not in self.members:
                    row.left()
            self.pending = None
            self._regroup()
            return Answer.NOTHING
        self.awaiting_controller = error in _AWAIT_CONTROLLER
        return Answer.NOTHING if self.awaiting_controller else Answer.AGAIN

    def _is_told_newer(self, result: AlterPartitionResult) -> bool:
        """A refusal (INVALID_UPDATE_VERSION) may carry the partition as it stands: take that."""
        return self._is_ours(result) and result.partition_epoch > self.partition_epoch

    def _is_told_same(self, result: AlterPartitionResult) -> bool:
        return self._is_ours(result) and result.partition_epoch == self.partition_epoch

    def _is_ours(self, result: AlterPartitionResult) -> bool:
        return (
            bool(result.isr)
            and result.leader_epoch == self.leader_epoch
            and result.leader_id == self.own_id
        )
