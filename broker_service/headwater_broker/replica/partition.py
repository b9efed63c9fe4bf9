"""One hosted replica: its log, its role and epochs, its high watermark.

`Partition` joins the pure rules (`isr`, `watermark`, `truncation`, `leader`) with a log. It does
no I/O but the log's, belongs to the broker's loop, and tells three plain callables what moved:

- `on_hw(partition)`: the high watermark (and with it perhaps the last stable offset) rose;
- `on_append(partition)`: the leader's log grew while others replicate it: parked follower
  fetches have data. It comes after the high watermark was tried, and not at all when no other
  broker holds a replica;
- `on_leadership(partition)`: leader, leader epoch or hosting changed: whatever is parked here
  must look again.

They must be O(1), must not raise and must not call back into the partition at once; None is fine.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from uuid import UUID

from headwater.clock import Clock
from headwater.errors import ErrorCode, KafkaError
from headwater.wire.control import AlterPartitionItem, AlterPartitionResult, PartitionState
from headwater_broker.log.results import EMPTY, AppendOrigin, AppendResult, LogSlice
from headwater_broker.log.unified_log import ALL_BATCHES, UnifiedLog
from headwater_broker.replica import isr as rules
from headwater_broker.replica import replica_errors as errors
from headwater_broker.replica.caught_up_followers import IdleRows
from headwater_broker.replica.high_watermark import follower_high_watermark, loaded_high_watermark
from headwater_broker.replica.isr import FollowerProgress
from headwater_broker.replica.leader_state import Answer, LeaderRole
from headwater_broker.replica.replication_limits import ReplicationLimits
from headwater_broker.replica.truncation import EpochEnd, divergence

Notify = Callable[["Partition"], None]

READ_UNCOMMITTED = 0
READ_COMMITTED = 1
ACKS_ALL = -1
NO_LEADER = -1


class Partition:
    """One replica on this broker, as leader, follower or neither.

    Attributes for reading: `topic`, `topic_id`, `partition`, `log`, `leader_id` (-1: none known),
    `leader_epoch`, `partition_epoch`, `isr` (committed), `replicas`, `adding_replicas` (of those,
    the ones that a move brings), `is_leader`, `high_watermark`, `offline_reason` (empty: fine),
    `role` (None: no leader), `idle` (who is told when something moves, see `IdleRows`).
    """

    __slots__ = (
        "_broker_id", "_clock", "_lag_max_s", "_limits", "_propose", "_short", "_sole",
        "adding_replicas", "held", "high_watermark", "idle", "is_leader", "isr", "leader_epoch",
        "leader_id", "log", "min_insync_replicas", "offline_reason", "on_append", "on_hw",
        "on_leadership", "partition", "partition_epoch", "replicas", "role", "storage_error",
        "topic", "topic_id",
    )  # fmt: skip

    def __init__(
        self,
        log: UnifiedLog,
        broker_id: int,
        clock: Clock,
        limits: ReplicationLimits,
        *,
        high_watermark: int,
        propose: Callable[[Partition], None],
    ) -> None:
        """`high_watermark` is the checkpointed one; `propose(partition)` sends `isr_item`."""
        self.idle = IdleRows()
        self.use_log(log)
        self.topic: str = log.topic
        self.topic_id: UUID = log.topic_id
        self.partition: int = log.partition
        self.leader_id = NO_LEADER
        self.leader_epoch = -1
        self.partition_epoch = -1
        self.isr: tuple[int, ...] = ()
        self.replicas: tuple[int, ...] = ()
        self.adding_replicas: tuple[int, ...] = ()
        self.is_leader = False
        self.min_insync_replicas = 1
        self.offline_reason = ""
        self.storage_error = False
        self.high_watermark = loaded_high_watermark(
            high_watermark, log.log_start_offset, log.log_end_offset
        )
        self.on_hw: Notify | None = None
        self.on_append: Notify | None = None
        self.on_leadership: Notify | None = None
        self._broker_id = broker_id
        self._clock = clock
        self._limits = limits
        self._lag_max_s = limits.replica_lag_time_max_ms / 1000
        self._propose = propose
        self.role: LeaderRole | None = None
        self._sole = False
        self._short = False
        self.held = False

    def __repr__(self) -> str:
        role = "leader" if self.is_leader else f"follower of {self.leader_id}"
        return f"<Partition {self.topic}-{self.partition} {role} epoch {self.leader_epoch}>"

    # -- the hot path: append, read, acknowledge

    def append(
        self,
        view: memoryview,
        acks: int,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
    ) -> AppendResult:
        """Append as leader. Raises NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS (acks=all, before
        anything is written), KAFKA_STORAGE_ERROR, and what the log refuses."""
        if not self.is_leader:
            raise errors.not_leader(self, self._broker_id)
        if self._short and (acks == ACKS_ALL or self.held):
            raise errors.held(self) if self.held else errors.not_enough_replicas(self)
        log = self.log
        try:
            result = log.append_as_leader(view, self.leader_epoch, now_ms, origin=origin)
        except KafkaError as error:
            self.check_storage(error)
            raise
        if self._sole:
            self.high_watermark = log.log_end_offset
            if self.on_hw is not None:
                self.on_hw(self)
            return result
        if not self.role.counted:  # type: ignore[union-attr] # a leader has a role
            self._advance()
        if self.on_append is not None:
            self.on_append(self)
        if self.idle:
            self.idle.stir()
        return result

    def outcome(self, last_offset: int, leader_epoch: int) -> ErrorCode | None:
        """What to answer an acks=all produce whose last offset is `last_offset`; None: park it.

        NONE once the high watermark passed it, NOT_ENOUGH_REPLICAS_AFTER_APPEND when the ISR has
        shrunk below min.insync.replicas by then, NOT_LEADER_OR_FOLLOWER when this leadership
        (`leader_epoch` at the append) has ended.
        """
        if not self.is_leader or self.leader_epoch != leader_epoch:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self.high_watermark > last_offset:
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND if self._short else ErrorCode.NONE
        return None

    def read(
        self,
        offset: int,
        max_bytes: int,
        isolation: int = READ_UNCOMMITTED,
        min_one: bool = True,
        replica: int | None = None,
    ) -> LogSlice:
        """Whole batches from `offset`, below the bound of `isolation` (or the log end, for a
        follower: `replica` is its id). Empty when `offset` is at or above the bound, though not
        above the log end.

        Raises OFFSET_OUT_OF_RANGE; for a follower below the local start but not below the log
        start OFFSET_MOVED_TO_TIERED_STORAGE. (A consumer's offset in
        [log_start_offset, local_log_start_offset) is the caller's to serve from the table.)
        """
        log = self.log
        if replica is not None:
            upper = log.log_end_offset
            if offset < log.local_log_start_offset:
                raise errors.below_local_start(self, offset)
        else:
            upper = self.last_stable_offset if isolation else self.high_watermark
        if offset >= upper:
            if offset > log.log_end_offset:
                raise errors.out_of_range(self, offset)
            return EMPTY
        try:
            return log.read(offset, max_bytes, upper, min_one=min_one)
        except KafkaError as error:
            self.check_storage(error)
            raise

    @property
    def last_stable_offset(self) -> int:
        """The bound of read-committed readers."""
        return self.log.last_stable_offset(self.high_watermark)

    @property
    def high_watermark_is_current(self) -> bool:
        """False on a new leader until its high watermark has reached its epoch's start: until
        then "latest" would go backwards, so ListOffsets answers OFFSET_NOT_AVAILABLE (KIP-207).
        """
        role = self.role
        return role is None or self.high_watermark >= role.epoch_start

    def check_leader_epoch(self, current_leader_epoch: int, *, leader_only: bool = True) -> None:
        """Fence a request by the epoch its sender knows (-1: no opinion), then by leadership;
        without `leader_only` a follower will do (KIP-392).

        Raises FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER (KIP-320).
        """
        own = self.leader_epoch
        if current_leader_epoch not in (-1, own):
            raise errors.other_epoch(self, current_leader_epoch)
        if not self.is_leader and (leader_only or self.offline_reason):
            raise errors.not_leader(self, self._broker_id)

    def divergence(self, fetch_offset: int, last_fetched_epoch: int) -> EpochEnd | None:
        """What a fetcher (follower or consumer) must be told when its log parted from ours."""
        log = self.log
        if last_fetched_epoch == -1 or (
            last_fetched_epoch == log.latest_epoch and fetch_offset <= log.log_end_offset
        ):
            return None
        end = EpochEnd(*self.log.end_offset_for_epoch(last_fetched_epoch))
        if end.epoch == -1:
            raise errors.epochs_gone(self, last_fetched_epoch)
        return divergence(end, last_fetched_epoch, fetch_offset)

    @property
    def latest_epoch(self) -> int:
        """The leader epoch of the newest record (or of this leadership); -1 when there is none."""
        return self.log.latest_epoch

    def own_epoch_end(self, epoch: int) -> EpochEnd:
        """The epoch end of this log, whoever leads."""
        return EpochEnd(*self.log.end_offset_for_epoch(epoch))

    def epoch_end(self, leader_epoch: int) -> EpochEnd:
        """OffsetForLeaderEpoch: the latest epoch ends at the log end, an unknown one is -1, -1."""
        if leader_epoch == self.leader_epoch and self.is_leader:
            return EpochEnd(leader_epoch, self.log.log_end_offset)
        return EpochEnd(*self.log.end_offset_for_epoch(leader_epoch))

    # -- followers, as their leader sees them

    def in_sync_with(self, offset: int) -> list[FollowerProgress]:
        """The followers in the (committed) ISR whose logs hold what is before `offset`, and it or
        their end; none where this is no leader."""
        return [] if self.role is None else self.role.in_sync_with(offset)

    def update_follower(
        self,
        replica_id: int,
        broker_epoch: int,
        fetch_offset: int,
        now: float,
        *,
        last_fetched_epoch: int = -1,
        log_start_offset: int = -1,
    ) -> EpochEnd | None:
        """A follower's fetch has arrived (once per fetch, before its data is read and before it
        is parked): record what it holds, perhaps move the high watermark or propose it for the
        ISR. `now` is `clock.monotonic()`.

        A divergence is returned instead of being counted: send it, and no records. Raises
        NOT_LEADER_OR_FOLLOWER (not a replica, or a broker epoch older than one seen),
        OFFSET_OUT_OF_RANGE.
        """
        role = self.role
        row = None if role is None else role.progress.get(replica_id)
        if role is None or row is None:
            raise errors.unknown_replica(self, self._broker_id, replica_id)
        if broker_epoch != row.broker_epoch:
            if broker_epoch < row.broker_epoch:
                raise errors.stale_broker_epoch(self, replica_id, broker_epoch, row.broker_epoch)
            row.broker_epoch = broker_epoch
        log = self.log
        end = log.log_end_offset
        parted = self.divergence(fetch_offset, last_fetched_epoch)
        if parted is not None:
            return parted
        if not log.log_start_offset <= fetch_offset <= end:
            raise errors.out_of_range(self, fetch_offset)
        row.fetched(fetch_offset, end, now)
        row.log_start_offset = log_start_offset
        self._advance()
        if role.waiting and row in role.waiting:
            members = role.join_proposal(row, self.high_watermark, now)
            if members is not None:
                self._put_forward(role, members)
        return None

    def low_watermark(self, live: Container[int]) -> int:
        """The lowest log start among the leader and its followers on `live` brokers, in sync or
        not: DeleteRecords waits for each. -1 as long as one has not fetched."""
        rows = () if self.role is None else self.role.progress.values()
        return min([self.log.log_start_offset, *(
            row.log_start_offset for row in rows if row.replica_id in live
        )])  # fmt: skip

    def isr_tick(self, now: float) -> None:
        """Propose to drop the followers that were not caught up for the lag time; or again what
        the controller was to settle."""
        role = self.role
        if role is None or role.sole:
            return
        members = role.shrink_proposal(self.log.log_end_offset, now, self._lag_max_s)
        if members is not None:
            self._put_forward(role, members)
        elif role.asks_again():
            self._propose(self)
        elif role.waiting:
            self._advance()  # somebody that was about to join may have gone: do not wait for it

    def _put_forward(self, role: LeaderRole, members: tuple[int, ...]) -> None:
        self.idle.marks_moved()
        role.propose(members)
        self._propose(self)

    @property
    def pending_isr(self) -> tuple[int, ...] | None:
        """The proposed ISR that the controller has not answered."""
        return None if self.role is None else self.role.pending

    def isr_item(self, broker_epoch: int) -> AlterPartitionItem | None:
        """The proposal as AlterPartition carries it; None when there is nothing to propose."""
        role = self.role
        if role is None or role.pending is None or role.awaiting_controller:
            return None
        return AlterPartitionItem(
            topic_id=self.topic_id,
            partition=self.partition,
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
            min_insync_replicas=self.min_insync_replicas,
            new_isr=role.member_epochs(broker_epoch),
        )

    def isr_answered(
        self, item: AlterPartitionItem, result: AlterPartitionResult, retry_at: float
    ) -> bool:
        """The controller's answer to `item`. True: the same proposal is to be sent again."""
        role = self.role
        if role is None:
            return False
        meaning = role.answered(item, result, retry_at)
        if meaning is Answer.INSTALL:
            self._install(role, self.replicas, result.isr, result.partition_epoch)
        return meaning is Answer.AGAIN

    # -- roles

    def become_leader(self, state: PartitionState, min_insync_replicas: int) -> None:
        """A new leader epoch, led here: its start is recorded before its first append."""
        self.log.assign_epoch_start(state.leader_epoch, self.log.log_end_offset)
        self.min_insync_replicas = min_insync_replicas
        role = LeaderRole(self._broker_id, state.leader_epoch, self.log.log_end_offset)
        self._take(state)
        self.role = role
        self.is_leader = True
        self.offline_reason = ""
        self._install(role, state.replicas, state.isr, state.partition_epoch)
        if self.on_leadership is not None:
            self.on_leadership(self)

    def become_follower(self, state: PartitionState) -> None:
        """A new leader epoch, led elsewhere (or by nobody: leader -1)."""
        self._take(state)
        self.offline_reason = ""
        self._stop_leading()
        if self.on_leadership is not None:
            self.on_leadership(self)

    def update_state(self, state: PartitionState) -> None:
        """The same leader epoch: ISR or assignment changed, no more."""
        role, is_newer = self.role, state.partition_epoch > self.partition_epoch
        self._take(state)
        if role is None:
            return
        self._install(role, state.replicas, state.isr, state.partition_epoch, settles=is_newer)
        if role.pending is not None:
            self._propose(self)  # one that waited to be told goes out again

    def stop(self, reason: str) -> None:
        """No longer hosted, or its disk failed: refuse everything from now on."""
        self.idle.stir()
        self.offline_reason = reason
        self.leader_id = NO_LEADER
        self._stop_leading()
        if self.on_leadership is not None:
            self.on_leadership(self)

    def check_storage(self, error: KafkaError) -> None:
        """Go offline when the log lost its disk: it is closed then; lack of descriptors passes."""
        if error.code is ErrorCode.KAFKA_STORAGE_ERROR and self.log.is_closed:
            self.fail_storage(error.detail)

    def fail_storage(self, reason: str) -> None:
        """The directory of this replica's log has failed."""
        if not self.storage_error:
            self.storage_error = True
            self.stop(f"log directory failed: {reason}")

    def set_min_insync_replicas(self, value: int) -> None:
        """min.insync.replicas of the topic changed."""
        self.min_insync_replicas = value
        if self.role is not None:
            self._install_bounds(self.role)
            self._advance()

    def _take(self, state: PartitionState) -> None:
        (self.idle.stir if state.leader_epoch != self.leader_epoch else self.idle.marks_moved)()
        self.leader_id = state.leader_id
        self.leader_epoch = state.leader_epoch
        self.partition_epoch = state.partition_epoch
        self.isr = state.isr
        self.replicas = state.replicas
        self.adding_replicas = state.adding_replicas

    def _stop_leading(self) -> None:
        self.is_leader = False
        self.role = None
        self._sole = self._short = self.held = False

    def _install(
        self,
        role: LeaderRole,
        replicas: tuple[int, ...],
        members: tuple[int, ...],
        partition_epoch: int,
        *,
        settles: bool = True,
    ) -> None:
        self.idle.marks_moved()
        role.install(replicas, members, partition_epoch, self._clock.monotonic(), settles=settles)
        self.isr = members
        self.partition_epoch = partition_epoch
        self._install_bounds(role)
        self._advance()

    def _install_bounds(self, role: LeaderRole) -> None:
        self._sole = role.sole
        self._short = self.held or rules.below_min_isr(
            len(self.isr), self.min_insync_replicas, len(self.replicas)
        )

    # -- followers' own side

    def append_as_follower(
        self,
        view: memoryview,
        leader_high_watermark: int,
        leader_log_start: int,
        batches_max: int = ALL_BATCHES,
    ) -> int:
        """Append what the leader sent (perhaps nothing) and follow its marks.

        Returns how many bytes were taken: at most `batches_max` batches in one turn of the loop.
        """
        log = self.log
        taken = log.append_as_follower(view, batches_max) if len(view) else 0
        mark = follower_high_watermark(
            self.high_watermark, leader_high_watermark, log.log_end_offset
        )
        if leader_log_start > log.log_start_offset and leader_log_start <= log.log_end_offset:
            log.delete_records_before(leader_log_start)
            mark = max(mark, leader_log_start)
        if mark != self.high_watermark:
            self._move_mark(mark)
        return taken

    def use_log(self, log: UnifiedLog) -> None:
        """`log` holds this replica's records from now on."""
        self.log = log
        log.on_log_start_moved = self.idle.marks_moved
        self.idle.stir()

    def truncate_to(self, offset: int) -> None:
        """Cut a divergent suffix (follower only)."""
        self.log.truncate_to(offset)
        self.high_watermark = min(self.high_watermark, self.log.log_end_offset)

    def restart_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """Drop everything and begin again at `offset` (follower, or a leader behind its table);
        tiered history before it begins at `log_start_offset`."""
        self.idle.stir()
        self.log.truncate_fully_and_start_at(offset, log_start_offset)
        self.high_watermark = offset
        if self.is_leader:
            self.log.assign_epoch_start(self.leader_epoch, offset)

    def _advance(self) -> None:
        role = self.role
        if role is None or self._short:
            return  # KIP-966: below min.insync.replicas nothing more counts as committed
        end = self.log.log_end_offset
        now = self._clock.monotonic() if role.waiting else 0.0
        mark = role.high_watermark(self.high_watermark, end, now, self._lag_max_s)
        if mark != self.high_watermark:
            self._move_mark(mark)

    def _move_mark(self, mark: int) -> None:
        self.high_watermark = mark
        if self.on_hw is not None:
            self.on_hw(self)
        self.idle.marks_moved()
