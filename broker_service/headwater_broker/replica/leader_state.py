"""The state of one leadership: followers' progress, committed and proposed ISR. Pure."""

from __future__ import annotations

from enum import Enum
from uuid import UUID

from headwater.errors import ErrorCode
from headwater.wire.control import AlterPartitionItem, AlterPartitionResult, IsrMember
from headwater_broker.replica import isr as rules
from headwater_broker.replica.high_watermark import leader_high_watermark
from headwater_broker.replica.isr import UNKNOWN_EPOCH, FollowerProgress

JOIN_WAIT_S = 1.0
"""The high watermark waits for a follower that is about to join the ISR only while it fetches at
least this often: it may be shutting down, and nothing would say so. A follower that always fetches
less often is given two of its own intervals, or the high watermark would be ahead of each fetch.
"""
_NOT_APPLIED = frozenset(
    {
        ErrorCode.INELIGIBLE_REPLICA,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.REASSIGNMENT_IN_PROGRESS,
    }
)
"""Errors after which the proposal is certainly not in force: drop it."""
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
"""Errors that mean a newer state at the controller: LeaderAndIsr or StopReplica follows."""


class ResultAction(Enum):
    """The action that follows the controller's answer to a proposal."""

    INSTALL = "take the state that the answer carries"
    RETRY = "send the same proposal again"
    NOTHING = "settled, outdated, or LeaderAndIsr follows"


class LeaderState:
    """One leadership: leader epoch, followers' progress, committed and proposed ISR."""

    __slots__ = (
        "awaits_controller",
        "began",
        "epoch_start",
        "is_sole_replica",
        "isr",
        "isr_followers",
        "leader_epoch",
        "other_followers",
        "own_id",
        "partition_epoch",
        "pending_broker_epochs",
        "pending_isr",
        "progress",
        "propose_after",
        "replicas",
    )

    def __init__(self, own_id: int, leader_epoch: int, epoch_start: int) -> None:
        self.own_id = own_id
        self.leader_epoch = leader_epoch
        self.epoch_start = epoch_start
        """Log end offset at the start of this leadership."""
        self.began: float | None = None
        """Start of this leadership, in monotonic seconds."""
        self.partition_epoch = -1
        self.replicas: tuple[int, ...] = ()
        self.isr: tuple[int, ...] = ()
        """The committed ISR."""
        self.pending_isr: tuple[int, ...] | None = None
        """The proposed ISR; None: no proposal is open."""
        self.pending_broker_epochs: tuple[tuple[int, int], ...] = ()
        """Broker epoch of each proposed member when it was found to be in sync."""
        self.awaits_controller = False
        """The proposal was answered by an error after which LeaderAndIsr follows."""
        self.propose_after = 0.0
        """No proposal before this time, in monotonic seconds."""
        self.progress: dict[int, FollowerProgress] = {}
        self.isr_followers: list[FollowerProgress] = []
        """Followers in the maximal ISR: the high watermark waits for each of them."""
        self.other_followers: list[FollowerProgress] = []
        """Other followers: the high watermark waits for those about to join the ISR."""
        self.is_sole_replica = False
        """No other replica: the high watermark is the log end."""

    def install(
        self,
        replicas: tuple[int, ...],
        isr: tuple[int, ...],
        partition_epoch: int,
        now: float,
        *,
        settles: bool = True,
    ) -> None:
        """Take the committed state of the controller. It settles an open proposal, unless it is the
        state that the proposal was made in (`settles` false): either may turn out to be true."""
        if self.began is None:
            self.began = now
        fresh = {
            replica: self.progress.get(replica) or self._new_progress(replica, isr, now)
            for replica in dict.fromkeys((*replicas, *isr))
            if replica != self.own_id
        }
        for member in self.isr:
            if member not in isr and member in fresh:
                fresh[member].left_isr()
        self.progress = fresh
        self.replicas = replicas
        self.isr = isr
        self.partition_epoch = partition_epoch
        self.awaits_controller = False
        if settles:
            self.pending_isr = None
        self._regroup()

    @staticmethod
    def _new_progress(replica_id: int, isr: tuple[int, ...], now: float) -> FollowerProgress:
        progress = FollowerProgress(replica_id)
        progress.reset(now, in_sync=replica_id in isr)
        return progress

    def _regroup(self) -> None:
        maximal = rules.maximal(self.isr, self.pending_isr)
        rows = self.progress.values()
        self.isr_followers = [row for row in rows if row.replica_id in maximal]
        self.other_followers = [row for row in rows if row.replica_id not in maximal]
        self.is_sole_replica = not self.progress

    def high_watermark(self, current: int, leader_end: int, now: float, lag_max_s: float) -> int:
        """The high watermark now. It also waits for followers outside the ISR that are caught up,
        or they could never reach it (Kafka: `shouldWaitForReplicaToJoinIsr`). A follower that was
        refused may be stopping: nothing waits for it before it may be proposed again.
        """
        if not self.other_followers:
            return leader_high_watermark(current, leader_end, self.isr_followers)
        joining = [
            row
            for row in self.other_followers
            if row.fetched_at >= self.propose_after
            and now - row.fetched_at <= max(JOIN_WAIT_S, min(2 * row.pace_s, lag_max_s))
            and row.caught_up(leader_end, now, lag_max_s)
        ]
        return leader_high_watermark(current, leader_end, [*self.isr_followers, *joining])

    def join_proposal(
        self, row: FollowerProgress, high_watermark: int, now: float
    ) -> tuple[int, ...] | None:
        """The ISR to propose after a fetch of `row`; None: none. One proposal is open at a time."""
        if (
            self.pending_isr is not None
            or row.replica_id in self.isr
            or now < self.propose_after
            or not rules.may_join(row, high_watermark, self.epoch_start)
        ):
            return None
        return rules.expanded(self.isr, row.replica_id)

    def is_fully_caught_up(
        self, replica_id: int, offset: int, leader_end: int, high_watermark: int
    ) -> bool:
        """True when a fetch from `offset` by this follower changes nothing here, as long as nothing
        is appended and leadership, ISR and high watermark stay."""
        if offset != leader_end or self._settled_row(replica_id, offset) is None:
            return False
        # A follower about to join holds the high watermark back for a while: each fetch tries it.
        return not self.other_followers or high_watermark == leader_end

    def in_sync_followers_at(self, offset: int) -> list[FollowerProgress]:
        """ISR followers whose logs hold `offset`, or end there."""
        return [
            row
            for row in self.progress.values()
            if row.replica_id in self.isr and row.log_start_offset <= offset <= row.log_end_offset
        ]

    def record_skipped_fetches(self, replica_id: int, offset: int, at: float) -> None:
        """The last fetch that was skipped because of `is_fully_caught_up` came at `at`
        (`clock.monotonic()`); `offset` was the log end then."""
        row = self._settled_row(replica_id, offset)
        if row is not None and at > row.fetched_at:
            row.fetched(offset, offset, at)

    def _settled_row(self, replica_id: int, offset: int) -> FollowerProgress | None:
        row = self.progress.get(replica_id)
        is_settled = self.pending_isr is None and replica_id in self.isr
        return row if is_settled and row is not None and row.log_end_offset == offset else None

    def shrink_proposal(
        self, leader_end: int, now: float, lag_max_s: float
    ) -> tuple[int, ...] | None:
        """The ISR to propose at a tick; None: none."""
        if self.pending_isr is not None or now < self.propose_after:
            return None
        gone = rules.out_of_sync(self.isr, self.progress, leader_end, now, lag_max_s)
        return rules.shrunk(self.isr, gone) if gone else None

    def repeats_proposal(self) -> bool:
        """At a tick: whether LeaderAndIsr is overdue since the proposal was fenced.

        The error may be of a deposed controller that did not know it: nothing follows then, and
        members that are only proposed would hold the high watermark back for ever.
        """
        was_awaited, self.awaits_controller = self.awaits_controller, False
        return was_awaited

    def propose(self, isr: tuple[int, ...]) -> None:
        """Open a proposal: the maximal ISR counts its members from now on.

        However often it is sent, it names the broker epochs of now: a follower that restarts
        meanwhile may have lost records (KIP-903), and is proposed anew once it has caught up.
        """
        self.pending_isr = isr
        self.pending_broker_epochs = tuple((member, self._epoch_of(member)) for member in isr)
        self._regroup()

    def alter_partition_item(
        self, topic_id: UUID, partition: int, min_insync_replicas: int, own_broker_epoch: int
    ) -> AlterPartitionItem | None:
        """The proposed ISR as an AlterPartition item; None: nothing to propose."""
        if self.pending_isr is None or self.awaits_controller:
            return None
        return AlterPartitionItem(
            topic_id=topic_id,
            partition=partition,
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
            min_insync_replicas=min_insync_replicas,
            new_isr=self._member_epochs(own_broker_epoch),
        )

    def _member_epochs(self, own_epoch: int) -> tuple[IsrMember, ...]:
        """The proposed members, each with the broker epoch of its fetches (KIP-903)."""
        return tuple(
            IsrMember(broker_id=member, broker_epoch=own_epoch if member == self.own_id else epoch)
            for member, epoch in self.pending_broker_epochs
        )

    def _epoch_of(self, replica_id: int) -> int:
        row = self.progress.get(replica_id)
        return UNKNOWN_EPOCH if row is None else row.broker_epoch

    def on_result(
        self, item: AlterPartitionItem, result: AlterPartitionResult, retry_at: float
    ) -> ResultAction:
        """The action after the controller's answer to `item`. A rejected proposal is made anew, or
        repeated, no sooner than `retry_at` (monotonic seconds)."""
        error = ErrorCode(result.error_code)
        if item.leader_epoch != self.leader_epoch:
            return ResultAction.NOTHING
        if error is not ErrorCode.NONE and not self._carries_newer(result):
            if item.partition_epoch != self.partition_epoch or self.pending_isr is None:
                return ResultAction.NOTHING  # LeaderAndIsr came before the answer
            return self._on_error(error, result, retry_at)
        if result.leader_epoch != self.leader_epoch or (
            result.partition_epoch < self.partition_epoch
        ):
            return ResultAction.NOTHING
        return ResultAction.INSTALL

    def _on_error(
        self, error: ErrorCode, result: AlterPartitionResult, retry_at: float
    ) -> ResultAction:
        """The proposal stays open until it is certain that it is not in force."""
        self.propose_after = retry_at
        # An answer in the state that the proposal was made in: it was not applied before, either.
        is_current = error is ErrorCode.INVALID_REQUEST and self._carries_same(result)
        if error in _NOT_APPLIED or is_current:
            for row in self.other_followers + self.isr_followers:
                if row.replica_id not in self.isr:
                    row.left_isr()
            self.pending_isr = None
            self._regroup()
            return ResultAction.NOTHING
        self.awaits_controller = error in _AWAIT_CONTROLLER
        return ResultAction.NOTHING if self.awaits_controller else ResultAction.RETRY

    def _carries_newer(self, result: AlterPartitionResult) -> bool:
        """An error (INVALID_UPDATE_VERSION) may carry the partition's present state: take it."""
        return self._is_own(result) and result.partition_epoch > self.partition_epoch

    def _carries_same(self, result: AlterPartitionResult) -> bool:
        return self._is_own(result) and result.partition_epoch == self.partition_epoch

    def _is_own(self, result: AlterPartitionResult) -> bool:
        return (
            bool(result.isr)
            and result.leader_epoch == self.leader_epoch
            and result.leader_id == self.own_id
        )
