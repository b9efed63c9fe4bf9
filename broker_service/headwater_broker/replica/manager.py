"""All replicas of this broker: roles from the controller, fetchers, ISR changes, checkpoints."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from headwater.errors import ErrorCode, KafkaError
from headwater.ordered import OrderedSet
from headwater.wire.control import (
    LeaderAndIsrReply,
    LeaderAndIsrRequest,
    LiveBroker,
    PartitionError,
    PartitionState,
    ReplicaStateReply,
    ReplicaStateRequest,
    StopReplicaPartition,
    StopReplicaReply,
    StopReplicaRequest,
    TopicState,
)
from headwater.wire.control_order import ControllerOrder
from headwater_broker.log.log_config import LogConfig
from headwater_broker.log.log_creation import LogCreation
from headwater_broker.log.log_manager import LogManager
from headwater_broker.log.unified_log import UnifiedLog
from headwater_broker.replica.alter_partition import AlterPartitionManager
from headwater_broker.replica.fetcher_manager import FetcherManager
from headwater_broker.replica.leader_and_isr import hosted_replica, is_other, refusal
from headwater_broker.replica.loop_steps import LoopSteps, begin_epoch, run_in_turns, run_now
from headwater_broker.replica.out_of_range_recovery import replica_state
from headwater_broker.replica.partition import Notify, Partition
from headwater_broker.replica.ports import ReplicationPorts
from headwater_broker.replica.replication_limits import ReplicationLimits
from headwater_broker.replica.replication_quota import ReplicationQuotas
from headwater_broker.replica.role_transitions import Decision, decide

_log = logging.getLogger(__name__)

STOPPED = "stopped by the controller"
DELETED = "deleted"
NO_DIRECTORY = UUID(int=0)


class ReplicaManager:
    """Every replica hosted here. All methods run on the broker's loop.

    `partitions` by (topic, partition); `by_id` by (topic id, partition); `topic_ids` topic name
    by the 16 bytes of the topic id (the fetch path's key). Never change them from outside.
    """

    def __init__(
        self,
        broker_id: int,
        logs: LogManager,
        limits: ReplicationLimits,
        ports: ReplicationPorts,
        *,
        on_leadership: Notify,
    ) -> None:
        """`on_leadership`: `Partition.on_leadership` of every partition."""
        self.broker_id = broker_id
        self.partitions: dict[tuple[str, int], Partition] = {}
        self.by_id: dict[tuple[UUID, int], Partition] = {}
        self.topic_ids: dict[bytes, str] = {}
        self.leadership_listeners: list[Callable[[Partition], None]] = []
        """Called after LeaderAndIsr or StopReplica was applied, per partition whose leader epoch,
        leadership or hosting changed (coordinators load and unload shards here).
        """
        self._on_leadership = on_leadership
        self._logs, self._folder_of = logs, logs.futures.folder_of
        self._limits = limits
        self._ports = ports
        self._overrides: dict[UUID, dict[str, str]] = {}
        logs.high_watermarks = self.high_watermark_of
        self._live: dict[int, LiveBroker] = {}
        self._isr_changes = AlterPartitionManager(
            broker_id, ports.broker_epoch, ports.clock, limits, ports.alter_partition
        )
        self.quotas = ReplicationQuotas(
            broker_id, ports.clock, limits.quota_windows, limits.log_dirs_quota_windows
        )
        self._fetchers = FetcherManager(
            broker_id, limits, ports, self.live_broker, self.quotas.follower
        )
        self.in_order = asyncio.Lock()
        """Held while a control request is taken."""
        self._order = ControllerOrder()
        self._taking = OrderedSet[asyncio.Task[LeaderAndIsrReply]]()

    # -- looking up

    def lookup(self, topic: str, partition: int) -> Partition:
        """The hosted replica. Raises UNKNOWN_TOPIC_OR_PARTITION."""
        found = self.partitions.get((topic, partition))
        if found is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"broker {self.broker_id} hosts no replica of {topic}-{partition}",
            )
        return found

    def leader(self, topic: str, partition: int) -> Partition:
        """The hosted replica, led here. Raises also NOT_LEADER_OR_FOLLOWER."""
        found = self.lookup(topic, partition)
        found.check_leader_epoch(-1)
        return found

    def live_broker(self, broker_id: int) -> LiveBroker | None:
        """A live broker: as the cluster view knows it, or as LeaderAndIsr named it."""
        return self._ports.broker(broker_id) or self._live.get(broker_id)

    # -- control requests

    async def handle_leader_and_isr(self, request: LeaderAndIsrRequest) -> LeaderAndIsrReply:
        """Become leader or follower as the controller says, with a turn of the loop after each
        partition: opening hundreds of logs stalls nobody.

        Control requests are taken one after the other, in the order they came.
        """
        # To its end even when the caller gives up: what a thread is creating must be taken over.
        task = asyncio.get_running_loop().create_task(self._take(request))
        self._taking.add(task)
        task.add_done_callback(self._taking.discard)
        return await asyncio.shield(task)

    async def _take(self, request: LeaderAndIsrRequest) -> LeaderAndIsrReply:
        async with self.in_order:
            return await run_in_turns(self._steps(request), self._ports.off_loop)

    def apply_leader_and_isr(self, request: LeaderAndIsrRequest) -> LeaderAndIsrReply:
        """The same in one turn of the loop."""
        return run_now(self._steps(request))

    def _steps(self, request: LeaderAndIsrRequest) -> LoopSteps[LeaderAndIsrReply]:
        """Partition by partition: gives jobs for the disk, to be done before it goes on, and None
        where the loop may have a turn. What was applied is followed and told even when this ends
        between two partitions: the controller sends the rest again."""
        refused = self._fence(request)
        if refused is not ErrorCode.NONE:
            return LeaderAndIsrReply(error_code=refused)
        self._live.update((broker.broker_id, broker) for broker in request.live_leaders)
        for topic in request.topics:
            self._take_configs(topic)
        results = []
        changed: list[Partition] = []
        following: list[Partition] = []
        try:
            for state in request.partitions:
                result = yield from self._apply_safely(state, changed, following)
                results.append(result)
                yield None
            if request.full:
                self._stop_unnamed(request, changed)
        finally:
            self._fetchers.follow(following)
            self._fetchers.drop_idle()
            self._tell(changed)
        return LeaderAndIsrReply(error_code=ErrorCode.NONE, partitions=tuple(results))

    async def handle_stop_replica(self, request: StopReplicaRequest) -> StopReplicaReply:
        """`stop_replica`, after the control requests that came before."""
        async with self.in_order:
            reply = self.stop_replica(request)
        if any(row.delete for row in request.partitions):
            await self._ports.durable()  # nobody asks again for what was confirmed
        return reply

    def stop_replica(self, request: StopReplicaRequest) -> StopReplicaReply:
        """Stop hosting; with `delete`, remove the log too (also one not hosted: the topic was
        deleted while this broker was away).
        """
        refused = self._fence(request)
        if refused is not ErrorCode.NONE:
            return StopReplicaReply(error_code=refused)
        changed: list[Partition] = []
        results = tuple(self._stop_one(row, changed) for row in request.partitions)
        self._fetchers.drop_idle()
        self._tell(changed)
        return StopReplicaReply(error_code=ErrorCode.NONE, partitions=results)

    def replica_state(self, request: ReplicaStateRequest) -> ReplicaStateReply:
        """A follower begins at our local start: producer state and leader epochs there."""
        partition = self.by_id.get((request.topic_id, request.partition))
        if partition is None:
            return ReplicaStateReply(error_code=ErrorCode.UNKNOWN_TOPIC_ID)
        return replica_state(partition, request.offset)

    def update_topic_configs(self, topic_id: UUID, overrides: Mapping[str, str]) -> None:
        """A topic's configuration overrides changed (all of them, as they now are)."""
        if self._overrides.get(topic_id, {}) == overrides:
            return  # as with most new topics: they have none
        self._overrides[topic_id] = dict(overrides)
        config = self._ports.log_config(overrides)
        for partition in self.partitions.values():
            if partition.topic_id == topic_id:
                _reconfigure(partition, config)

    def update_log_configs(self) -> None:
        """The broker's own settings changed, and with them what topics default to."""
        configs: dict[UUID, LogConfig] = {}
        for partition in self.partitions.values():
            config = configs.get(partition.topic_id)
            if config is None:
                config = configs[partition.topic_id] = self._config_of(partition.topic_id)
            if config != partition.log.config:
                _reconfigure(partition, config)

    # -- ticks and state

    def isr_tick(self) -> None:
        """Shrink ISRs; call every replica.lag.time.max.ms / 2."""
        now = self._ports.clock.monotonic()
        for partition in self.partitions.values():
            partition.isr_tick(now)

    def high_watermark_of(self, log: UnifiedLog) -> int:
        """What `replication-offset-checkpoint` shall hold of a log (LogManager's provider)."""
        partition = self.partitions.get((log.topic, log.partition))
        if partition is None or partition.log is not log:
            return self._logs.high_watermark_checkpoint(log)
        return partition.high_watermark

    def directory_failed(self, folder: str, logs: list[UnifiedLog]) -> None:
        """A disk failed (`LogManager.on_offline`): its replicas go offline, the others go on."""
        _log.error("log directory %s failed: %d replicas go offline", folder, len(logs))
        for log in logs:
            partition = self.partitions.get((log.topic, log.partition))
            if partition is not None and partition.log is log:
                partition.fail_storage(folder)

    def describe_fetching(self) -> dict[str, Any]:
        """For the status page, beside the partitions' own rows (`describe_partition`)."""
        return {
            "controller_epoch": self._order.controller_epoch,
            "fetchers": self._fetchers.describe(),
        }

    @property
    def isr_shrinks_total(self) -> int:
        """How often a leader here made its ISR smaller."""
        return self._isr_changes.shrinks_total

    @property
    def isr_expands_total(self) -> int:
        """How often a leader here made its ISR larger."""
        return self._isr_changes.expands_total

    def leave(self) -> None:
        """This broker drains: what it has handed over it does not begin to follow."""
        self._fetchers.leave()

    async def close(self) -> None:
        """Stop fetchers and pending ISR changes; logs stay open (LogManager closes them)."""
        for task in list(self._taking):
            task.cancel()
        await asyncio.gather(*self._taking, return_exceptions=True)
        await self._fetchers.close()
        await self._isr_changes.close()

    # -- one partition

    def _fence(self, request: LeaderAndIsrRequest | StopReplicaRequest) -> ErrorCode:
        if self._order.is_old(request.controller_epoch, request.sequence):
            return ErrorCode.STALE_CONTROLLER_EPOCH
        own = self._ports.broker_epoch()
        if request.broker_epoch > -1 and (own == -1 or request.broker_epoch < own):
            # Not registered yet: the registration it means is of our last life, which the store has
            # not given up. What that life held may be gone with its power.
            return ErrorCode.STALE_BROKER_EPOCH
        self._order.take(request.controller_epoch, request.sequence)
        return ErrorCode.NONE

    def _take_configs(self, topic: TopicState) -> None:
        overrides = {row.name: row.value for row in topic.configs if row.value is not None}
        self.update_topic_configs(topic.topic_id, overrides)

    def _config_of(self, topic_id: UUID) -> LogConfig:
        return self._ports.log_config(self._overrides.get(topic_id, {}))

    def _apply_safely(
        self, state: PartitionState, changed: list[Partition], following: list[Partition]
    ) -> LoopSteps[PartitionError]:
        error, partition = ErrorCode.NONE, None
        try:
            partition = yield from self._apply(state, changed, following)
        except KafkaError as refused:
            _log.warning("LeaderAndIsr: %s", refused)
            error = refused.code
        except OSError as failed:
            _log.error("LeaderAndIsr: %s-%d: %s", state.topic, state.partition, failed)
            error = ErrorCode.KAFKA_STORAGE_ERROR
        return PartitionError(
            topic_id=state.topic_id,
            partition=state.partition,
            error_code=error,
            directory_id=NO_DIRECTORY if partition is None else self._folder_of(partition.log),
        )

    def _apply(
        self, state: PartitionState, changed: list[Partition], following: list[Partition]
    ) -> LoopSteps[Partition | None]:
        hosted = self.by_id.get((state.topic_id, state.partition))
        what = decide(
            None if hosted is None else hosted_replica(hosted),
            state.leader_epoch,
            state.partition_epoch,
            is_replica=self.broker_id in state.replicas,
            leads_here=state.leader_id == self.broker_id,
            is_other=hosted is not None and is_other(hosted, state),
        )
        if what is Decision.NOT_HERE:
            _log.warning("LeaderAndIsr: %s-%d: %s", state.topic, state.partition, what.value)
            return None
        if what in (Decision.FAILED, Decision.STALE):
            raise refusal(state, what, hosted)
        partition = hosted or (yield from self._host(state))
        if what is Decision.UPDATE:
            partition.update_state(state)
        elif what is Decision.LEAD:
            yield from self._lead(partition, state)
            changed.append(partition)
        elif what is Decision.FOLLOW:
            partition.become_follower(state)
            following.append(partition)
            changed.append(partition)
        return partition

    def _lead(self, partition: Partition, state: PartitionState) -> LoopSteps[None]:
        self._fetchers.unfollow(partition)
        tiered = self._ports.tiered_end(partition.topic_id, partition.partition)
        if tiered is not None and partition.log.log_end_offset < tiered:
            # Offsets that are in the table are never given out again.
            partition.restart_at(tiered, partition.log.log_start_offset)
        if not partition.is_leader:  # nobody appends meanwhile
            yield from begin_epoch(partition.log, state.leader_epoch)
            if partition.storage_error:  # meanwhile
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, partition.offline_reason)
        partition.become_leader(state, partition.log.config.min_insync_replicas)
        is_empty = state.is_new and not partition.log.log_end_offset
        if partition.log.config.remote_storage and not is_empty and len(partition.isr) == 1:
            # Perhaps an unclean election: the end of the table known here may be too old.
            partition.set_awaits_tiered_end(True)

    def _host(self, state: PartitionState) -> LoopSteps[Partition]:
        """Open or create the log. An older topic of the same name gives way."""
        key = (state.topic, state.partition)
        older = self.partitions.get(key)
        if older is not None:
            self._forget(older, DELETED)
        if (
            state.leader_id == self.broker_id
            and state.leader_epoch > 0
            and not state.is_new
            and not self._has_log(state)
        ):
            # An empty disk must never lead: whoever was in the ISR had a log here.
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{state.topic}-{state.partition}: told to lead epoch {state.leader_epoch}, "
                "but no log directory of this broker holds that replica",
            )
        config = self._config_of(state.topic_id)
        log = self._logs.find_or_plan(
            state.topic, state.topic_id, state.partition, config, is_new=state.is_new
        )
        if isinstance(log, LogCreation):
            yield log.run
            log = self._logs.adopt(log)
            log.update_config(self._config_of(state.topic_id))
        if state.leader_epoch < log.latest_epoch:
            raise KafkaError(
                ErrorCode.FENCED_LEADER_EPOCH,
                f"{state.topic}-{state.partition}: leader epoch {state.leader_epoch} is older than "
                f"the records here, of epoch {log.latest_epoch}",
            )
        partition = Partition(
            log,
            self.broker_id,
            self._ports.clock,
            self._limits,
            high_watermark=self._logs.high_watermark_checkpoint(log),
            propose=self._isr_changes.propose,
        )
        partition.on_leadership = self._on_leadership
        self.partitions[key] = partition
        self.by_id[(state.topic_id, state.partition)] = partition
        self.topic_ids[state.topic_id.bytes] = state.topic
        return partition

    def _has_log(self, state: PartitionState) -> bool:
        """One of an older topic of that name is not it."""
        return self._logs.find(state.topic, state.topic_id, state.partition) is not None

    def _forget(self, partition: Partition, reason: str) -> None:
        self._fetchers.unfollow(partition)
        partition.stop(reason)
        self.partitions.pop((partition.topic, partition.partition), None)
        self.by_id.pop((partition.topic_id, partition.partition), None)
        if not any(topic_id == partition.topic_id for topic_id, _ in self.by_id):
            self.topic_ids.pop(partition.topic_id.bytes, None)
            self._overrides.pop(partition.topic_id, None)

    def _stop_one(self, row: StopReplicaPartition, changed: list[Partition]) -> PartitionError:
        partition = self.by_id.get((row.topic_id, row.partition))
        error = ErrorCode.NONE
        try:
            if partition is not None and -1 < row.leader_epoch < partition.leader_epoch:
                error = ErrorCode.FENCED_LEADER_EPOCH
            else:
                if partition is not None:
                    self._stop_hosted(partition, delete=row.delete)
                    changed.append(partition)
                if row.delete:
                    self._logs.delete_replica(row.topic, row.topic_id, row.partition)
        except OSError as failed:
            _log.error("StopReplica: %s-%d: %s", row.topic, row.partition, failed)
            error = ErrorCode.KAFKA_STORAGE_ERROR
        return PartitionError(
            topic_id=row.topic_id,
            partition=row.partition,
            error_code=error,
            directory_id=NO_DIRECTORY,
        )

    def _stop_hosted(self, partition: Partition, *, delete: bool) -> None:
        if delete:
            self._forget(partition, DELETED)
        else:
            self._fetchers.unfollow(partition)
            partition.stop(STOPPED)

    def _stop_unnamed(self, request: LeaderAndIsrRequest, changed: list[Partition]) -> None:
        """A full request names all that this broker hosts. What it does not name is stopped, but
        its log stays: only StopReplica with `delete` removes data.
        """
        named = {(state.topic_id, state.partition) for state in request.partitions}
        for key, partition in list(self.by_id.items()):
            if key not in named and not partition.offline_reason:
                self._stop_hosted(partition, delete=False)
                changed.append(partition)

    def _tell(self, changed: list[Partition]) -> None:
        for partition in changed:
            for listener in self.leadership_listeners:
                listener(partition)


def _reconfigure(partition: Partition, config: LogConfig) -> None:
    partition.log.update_config(config)
    partition.set_min_insync_replicas(config.min_insync_replicas)


def describe_partition(partition: Partition) -> dict[str, Any]:
    """One replica's row of the status document."""
    log = partition.log
    return {
        "topic": partition.topic,
        "topic_id": str(partition.topic_id),
        "partition": partition.partition,
        "leader": partition.leader_id,
        "leader_epoch": partition.leader_epoch,
        "partition_epoch": partition.partition_epoch,
        "is_leader": partition.is_leader,
        "replicas": list(partition.replicas),
        "adding_replicas": list(partition.adding_replicas),
        "isr": list(partition.isr),
        "pending_isr": None if partition.pending_isr is None else list(partition.pending_isr),
        "high_watermark": partition.high_watermark,
        "log_start_offset": log.log_start_offset,
        "local_log_start_offset": log.local_log_start_offset,
        "log_end_offset": log.log_end_offset,
        "size_bytes": log.size_bytes,
        "offline_reason": partition.offline_reason,
    }
