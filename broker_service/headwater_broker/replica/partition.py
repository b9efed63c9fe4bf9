"""One replica of a partition on this broker: its log, its role and epochs, its high watermark.

`Partition` joins a log with the pure rules (`isr`, `high_watermark`, `truncation`,
`leader_state`). It does no I/O but the log's, belongs to the broker's loop, and calls back when
something moved:

- `on_hw(partition)`: the high watermark rose, and with it perhaps the last stable offset;
- `on_append(partition)`: the leader's log grew while followers replicate it, so their delayed
  fetches have data. Called after the high watermark was tried, and not at all for a sole replica;
- `on_low_watermark(partition)`: the log start of a follower, or the set of replicas, changed;
- `on_leadership(partition)`: leader, leader epoch or hosting changed: every delayed operation of
  the partition is to be tried again.

A callback is O(1), does not raise and does not call back into the partition at once; None is fine.
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
from headwater_broker.replica.caught_up_followers import CaughtUpFollowers
from headwater_broker.replica.high_watermark import follower_high_watermark, loaded_high_watermark
from headwater_broker.replica.isr import FollowerProgress
from headwater_broker.replica.leader_state import LeaderState, ResultAction
from headwater_broker.replica.replication_config import ReplicationConfig
from headwater_broker.replica.truncation import EpochEnd, divergence

Notify = Callable[["Partition"], None]

READ_UNCOMMITTED = 0
ACKS_ALL = -1
NO_LEADER = -1


class Partition:
    """A replica as leader, as follower, or stopped.

    To be read only: `topic`, `topic_id`, `partition`, `log`, `leader_id` (-1: none known),
    `leader_epoch`, `partition_epoch`, `isr` (committed), `replicas`, `adding_replicas` (those that
    a reassignment adds), `is_leader`, `high_watermark`, `offline_reason` (empty: online),
    `leader_state` (None: not the leader), `caught_up_followers`, `awaits_tiered_end` (a leader
    that appends nothing until the end of its Delta table is known).
    """

    __slots__ = (
        "_broker_id", "_clock", "_lag_max_s", "_limits", "_propose", "adding_replicas",
        "awaits_tiered_end", "cannot_commit", "caught_up_followers", "high_watermark", "is_leader",
        "is_sole_replica", "isr", "leader_epoch", "leader_id", "leader_state", "log",
        "min_insync_replicas", "offline_reason", "on_append", "on_hw", "on_leadership",
        "on_low_watermark", "partition", "partition_epoch", "replicas", "storage_error", "topic",
        "topic_id",
    )  # fmt: skip

    def __init__(
        self,
        log: UnifiedLog,
        broker_id: int,
        clock: Clock,
        limits: ReplicationConfig,
        *,
        high_watermark: int,
        propose: Callable[[Partition], None],
    ) -> None:
        """`high_watermark`: of the checkpoint; `propose` sends `alter_partition_item`."""
        self.caught_up_followers = CaughtUpFollowers()
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
        self.on_low_watermark: Notify | None = None
        self._broker_id = broker_id
        self._clock = clock
        self._limits = limits
        self._lag_max_s = limits.replica_lag_time_max_ms / 1000
        self._propose = propose
        self.leader_state: LeaderState | None = None
        self.is_sole_replica = False
        self.cannot_commit = False
        self.awaits_tiered_end = False

    def __repr__(self) -> str:
        role = "leader" if self.is_leader else f"follower of {self.leader_id}"
        return f"<Partition {self.topic}-{self.partition} {role} epoch {self.leader_epoch}>"

    # -- hot path: append, read, acknowledge

    def append(
        self,
        view: memoryview,
        acks: int,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
    ) -> AppendResult:
        """Append as leader. Raises NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS (acks=all; nothing
        is written), KAFKA_STORAGE_ERROR, and the errors of `UnifiedLog.append_as_leader`."""
        if self.cannot_commit or not self.is_leader:
            self.check_append(acks)
        log = self.log
        try:
            result = log.append_as_leader(view, self.leader_epoch, now_ms, origin=origin)
        except KafkaError as error:
            self.check_storage(error)
            raise
        if self.is_sole_replica:
            self.high_watermark = log.log_end_offset
            if self.on_hw is not None:
                self.on_hw(self)
            return result
        if not self.leader_state.isr_followers:  # type: ignore[union-attr] # a leader has it
            self._advance()
        if self.on_append is not None:
            self.on_append(self)
        if self.caught_up_followers:
            self.caught_up_followers.wake_all()
        return result

    def check_append(self, acks: int = ACKS_ALL) -> None:
        """Raises what leadership, ISR or an unknown end of the table reject an append with now."""
        if not self.is_leader:
            raise errors.not_leader(self, self._broker_id)
        if self.cannot_commit and (acks == ACKS_ALL or self.awaits_tiered_end):
            raise errors.cannot_commit(self)

    def outcome(self, last_offset: int, leader_epoch: int) -> ErrorCode | None:
        """The outcome of an acks=all append; None while it is not replicated.
        NONE once the high watermark has passed `last_offset`, NOT_ENOUGH_REPLICAS_AFTER_APPEND when
        the ISR has shrunk below min.insync.replicas by then, NOT_LEADER_OR_FOLLOWER when the
        leadership of the append (`leader_epoch`) has ended.
        """
        if not self.is_leader or self.leader_epoch != leader_epoch:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self.high_watermark > last_offset:
            return (
                ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND if self.cannot_commit else ErrorCode.NONE
            )
        return None

    def read(
        self,
        offset: int,
        max_bytes: int,
        isolation: int = READ_UNCOMMITTED,
        min_one: bool = True,
        replica: int | None = None,
    ) -> LogSlice:
        """Whole batches from `offset`, up to the bound of `isolation` (for a follower, whose id is
        `replica`: up to the log end). Empty when `offset` lies between the bound and the log end.
        Raises OFFSET_OUT_OF_RANGE, and for a follower between log start and local log start
        OFFSET_MOVED_TO_TIERED_STORAGE. (A consumer's offset in that range is read from the Delta
        table by the caller.)
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
        """The offset that read_committed consumers read up to."""
        return self.log.last_stable_offset(self.high_watermark)

    @property
    def high_watermark_is_current(self) -> bool:
        """False on a new leader until its high watermark has reached the start of its epoch: until
        then "latest" would go backwards, and ListOffsets answers OFFSET_NOT_AVAILABLE (KIP-207).
        """
        role = self.leader_state
        return role is None or self.high_watermark >= role.epoch_start

    def check_leader_epoch(self, current_leader_epoch: int, *, leader_only: bool = True) -> None:
        """Check the leader epoch that the sender of a request knows (-1: none), then leadership;
        without `leader_only` a follower may serve the request (KIP-392).
        Raises FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER (KIP-320).
        """
        own = self.leader_epoch
        if current_leader_epoch not in (-1, own):
            raise errors.wrong_leader_epoch(self, current_leader_epoch)
        if not self.is_leader and (leader_only or self.offline_reason):
            raise errors.not_leader(self, self._broker_id)

    def divergence(self, fetch_offset: int, last_fetched_epoch: int) -> EpochEnd | None:
        """The diverging epoch to answer a fetch with; None: the logs do not diverge."""
        log = self.log
        if last_fetched_epoch == -1 or (
            last_fetched_epoch == log.latest_epoch and fetch_offset <= log.log_end_offset
        ):
            return None
        end = EpochEnd(*self.log.end_offset_for_epoch(last_fetched_epoch))
        if end.epoch == -1:
            raise errors.unknown_epoch(self, last_fetched_epoch)
        return divergence(end, last_fetched_epoch, fetch_offset)

    def epoch_end(self, leader_epoch: int) -> EpochEnd:
        """OffsetForLeaderEpoch: the current epoch ends at the log end; (-1, -1): unknown epoch."""
        if leader_epoch == self.leader_epoch and self.is_leader:
            return EpochEnd(leader_epoch, self.log.log_end_offset)
        return EpochEnd(*self.log.end_offset_for_epoch(leader_epoch))

    # -- followers, as seen by the leader

    def in_sync_followers_at(self, offset: int) -> list[FollowerProgress]:
        """ISR followers whose logs hold `offset`, or end there; none on a follower."""
        return [] if self.leader_state is None else self.leader_state.in_sync_followers_at(offset)

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
        """Record a follower's fetch, once per fetch and before its data is read: advance the high
        watermark, perhaps propose the follower for the ISR. `now` is `clock.monotonic()`.
        A diverging epoch is returned instead: answer it, with no records. Raises
        NOT_LEADER_OR_FOLLOWER (not a replica, or a broker epoch older than one seen),
        OFFSET_OUT_OF_RANGE.
        """
        role = self.leader_state
        row = None if role is None else role.progress.get(replica_id)
        if role is None or row is None:
            raise errors.unknown_replica(self, self._broker_id, replica_id)
        if broker_epoch != row.broker_epoch:
            if broker_epoch < row.broker_epoch:
                raise errors.stale_broker_epoch(self, replica_id, broker_epoch, row.broker_epoch)
            row.broker_epoch = broker_epoch
        log = self.log
        end = log.log_end_offset
        if (diverging := self.divergence(fetch_offset, last_fetched_epoch)) is not None:
            return diverging
        if not log.log_start_offset <= fetch_offset <= end:
            raise errors.out_of_range(self, fetch_offset)
        row.fetched(fetch_offset, end, now)
        if log_start_offset != row.log_start_offset:
            row.log_start_offset = log_start_offset
            self._low_watermark_moved()
        self._advance()
        if role.other_followers and row in role.other_followers:
            isr = role.join_proposal(row, self.high_watermark, now)
            if isr is not None:
                self._propose_isr(role, isr)
        return None

    def low_watermark(self, live: Container[int]) -> int:
        """The lowest log start of the leader and its followers on `live` brokers, in sync or not;
        -1 while one of them has not fetched. DeleteRecords waits for it (KIP-107)."""
        rows = () if self.leader_state is None else self.leader_state.progress.values()
        return min([self.log.log_start_offset, *(
            row.log_start_offset for row in rows if row.replica_id in live
        )])  # fmt: skip

    def isr_tick(self, now: float) -> None:
        """Propose to remove followers that lag by replica.lag.time.max.ms, or repeat a proposal."""
        role = self.leader_state
        if role is None or role.is_sole_replica:
            return
        isr = role.shrink_proposal(self.log.log_end_offset, now, self._lag_max_s)
        if isr is not None:
            self._propose_isr(role, isr)
        elif role.repeats_proposal():
            self._propose(self)
        elif role.other_followers:
            self._advance()  # a follower that was about to join may have gone: do not wait for it

    def _propose_isr(self, role: LeaderState, isr: tuple[int, ...]) -> None:
        self.caught_up_followers.state_updated()
        role.propose(isr)
        self._propose(self)

    @property
    def pending_isr(self) -> tuple[int, ...] | None:
        """The ISR proposed to the controller and not answered yet."""
        return None if self.leader_state is None else self.leader_state.pending_isr

    def alter_partition_item(self, broker_epoch: int) -> AlterPartitionItem | None:
        """The proposed ISR as an AlterPartition item; None: nothing to propose."""
        role = self.leader_state
        if role is None:
            return None
        topic_id, minimum = self.topic_id, self.min_insync_replicas
        return role.alter_partition_item(topic_id, self.partition, minimum, broker_epoch)

    def on_isr_result(
        self, item: AlterPartitionItem, result: AlterPartitionResult, retry_at: float
    ) -> bool:
        """The controller's answer to `item`. True: send the same proposal again."""
        role = self.leader_state
        if role is None:
            return False
        action = role.on_result(item, result, retry_at)
        if action is ResultAction.INSTALL:
            self._install(role, self.replicas, result.isr, result.partition_epoch)
        else:
            self._advance()  # nothing waits for a refused follower any more
        return action is ResultAction.RETRY

    # -- roles

    def become_leader(self, state: PartitionState, min_insync_replicas: int) -> None:
        """Lead a new epoch; its start offset is recorded before its first append."""
        self.log.assign_epoch_start(state.leader_epoch, self.log.log_end_offset)
        self.min_insync_replicas = min_insync_replicas
        role = LeaderState(self._broker_id, state.leader_epoch, self.log.log_end_offset)
        self._apply(state)
        self.leader_state = role
        self.is_leader = True
        self.offline_reason = ""
        self._install(role, state.replicas, state.isr, state.partition_epoch)
        if self.on_leadership is not None:
            self.on_leadership(self)

    def become_follower(self, state: PartitionState) -> None:
        """Follow the leader of a new epoch (leader -1: none)."""
        self._apply(state)
        self.offline_reason = ""
        self._stop_leading()
        if self.on_leadership is not None:
            self.on_leadership(self)

    def update_state(self, state: PartitionState) -> None:
        """A new ISR or assignment within the leader epoch."""
        role, is_newer = self.leader_state, state.partition_epoch > self.partition_epoch
        self._apply(state)
        if role is None:
            return
        self._install(role, state.replicas, state.isr, state.partition_epoch, settles=is_newer)
        if role.pending_isr is not None:
            self._propose(self)  # one that awaited the controller is sent again

    def stop(self, reason: str) -> None:
        """Refuse every request from now on: not hosted any more, or its log directory failed."""
        self.caught_up_followers.wake_all()
        self.offline_reason = reason
        self.leader_id = NO_LEADER
        self._stop_leading()
        if self.on_leadership is not None:
            self.on_leadership(self)

    def check_storage(self, error: KafkaError) -> None:
        """Go offline if the log is closed: its directory failed. A lack of descriptors passes."""
        if error.code is ErrorCode.KAFKA_STORAGE_ERROR and self.log.is_closed:
            self.fail_storage(error.detail)

    def fail_storage(self, reason: str) -> None:
        """Go offline: the log directory has failed."""
        if not self.storage_error:
            self.storage_error = True
            self.stop(f"log directory failed: {reason}")

    def set_min_insync_replicas(self, value: int) -> None:
        """Apply a changed min.insync.replicas of the topic."""
        self.min_insync_replicas = value
        if self.leader_state is not None:
            self._install_bounds(self.leader_state)
            self._advance()

    def set_awaits_tiered_end(self, value: bool) -> None:
        """True: append nothing, as offsets might be in the Delta table already."""
        self.awaits_tiered_end = value
        self.set_min_insync_replicas(self.min_insync_replicas)

    def _apply(self, state: PartitionState) -> None:
        followers, is_same = self.caught_up_followers, state.leader_epoch == self.leader_epoch
        (followers.state_updated if is_same else followers.wake_all)()
        self.leader_id = state.leader_id
        self.leader_epoch = state.leader_epoch
        self.partition_epoch = state.partition_epoch
        self.isr = state.isr
        self.replicas = state.replicas
        self.adding_replicas = state.adding_replicas

    def _stop_leading(self) -> None:
        self.is_leader = False
        self.leader_state = None
        self.is_sole_replica = self.cannot_commit = self.awaits_tiered_end = False

    def _install(
        self,
        role: LeaderState,
        replicas: tuple[int, ...],
        isr: tuple[int, ...],
        partition_epoch: int,
        *,
        settles: bool = True,
    ) -> None:
        self.caught_up_followers.state_updated()
        role.install(replicas, isr, partition_epoch, self._clock.monotonic(), settles=settles)
        self.isr = isr
        self.partition_epoch = partition_epoch
        self._install_bounds(role)
        self._low_watermark_moved()
        self._advance()

    def _install_bounds(self, role: LeaderState) -> None:
        self.is_sole_replica = role.is_sole_replica
        self.cannot_commit = self.awaits_tiered_end or rules.below_min_isr(
            len(self.isr), self.min_insync_replicas, len(self.replicas)
        )

    # -- as follower

    def append_as_follower(
        self,
        view: memoryview,
        leader_high_watermark: int,
        leader_log_start: int,
        batches_max: int = ALL_BATCHES,
    ) -> int:
        """Append the leader's batches (perhaps none), at most `batches_max`; follow its high
        watermark and log start. Returns the number of bytes appended."""
        log = self.log
        taken = log.append_as_follower(view, batches_max) if len(view) else 0
        mark = follower_high_watermark(
            self.high_watermark, leader_high_watermark, log.log_end_offset
        )
        if leader_log_start > log.log_start_offset and leader_log_start <= log.log_end_offset:
            log.delete_records_before(leader_log_start)
            mark = max(mark, leader_log_start)
        if mark != self.high_watermark:
            self._set_high_watermark(mark)
        return taken

    def use_log(self, log: UnifiedLog) -> None:
        """Replace the log, as after a move between log directories."""
        self.log = log
        log.on_log_start_moved = self.caught_up_followers.state_updated
        self.caught_up_followers.wake_all()

    def truncate_to(self, offset: int) -> None:
        """Truncate a diverging suffix (follower only)."""
        self.log.truncate_to(offset)
        self.high_watermark = min(self.high_watermark, self.log.log_end_offset)

    def restart_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """Truncate fully and start at `offset`, tiered records before it at `log_start_offset`: a
        follower, or a leader behind its Delta table."""
        self.caught_up_followers.wake_all()
        self.log.truncate_fully_and_start_at(offset, log_start_offset)
        self.high_watermark = offset
        if self.is_leader:
            self.log.assign_epoch_start(self.leader_epoch, offset)

    def _advance(self) -> None:
        role = self.leader_state
        if role is None or self.cannot_commit:
            return  # KIP-966: below min.insync.replicas nothing commits
        end = self.log.log_end_offset
        now = self._clock.monotonic() if role.other_followers else 0.0
        mark = role.high_watermark(self.high_watermark, end, now, self._lag_max_s)
        if mark != self.high_watermark:
            self._set_high_watermark(mark)

    def _low_watermark_moved(self) -> None:
        if self.on_low_watermark is not None:
            self.on_low_watermark(self)

    def _set_high_watermark(self, mark: int) -> None:
        self.high_watermark = mark
        self.log.high_watermark_moved(mark)
        if self.on_hw is not None:
            self.on_hw(self)
        self.caught_up_followers.state_updated()
