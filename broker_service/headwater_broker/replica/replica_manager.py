"""The replicas of this broker: roles set by the controller, fetchers, ISR changes, checkpoints."""

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
from headwater_broker.log.log_config import LogConfig
from headwater_broker.log.log_creation import LogCreation
from headwater_broker.log.log_manager import LogManager
from headwater_broker.log.unified_log import UnifiedLog
from headwater_broker.replica.alter_partition import AlterPartitionManager
from headwater_broker.replica.control_fence import ControlFence
from headwater_broker.replica.fetcher_manager import FetcherManager
from headwater_broker.replica.leader_and_isr import (
    RoleTransition,
    decide,
    differs,
    hosted_replica,
    rejection,
)
from headwater_broker.replica.loop_steps import LoopSteps, begin_epoch, run_in_turns, run_now
from headwater_broker.replica.out_of_range_recovery import replica_state
from headwater_broker.replica.partition import Notify, Partition
from headwater_broker.replica.ports import ReplicationPorts
from headwater_broker.replica.replication_config import ReplicationConfig
from headwater_broker.replica.replication_quota import ReplicationQuotas

_log = logging.getLogger(__name__)

STOPPED = "stopped by the controller"
DELETED = "deleted"
NO_DIRECTORY = UUID(int=0)


class ReplicaManager:
    """Every replica hosted by this broker. All methods run on the broker's loop.

    To be read only: `partitions` by (topic, partition); `by_id` by (topic id, partition);
    `topic_ids`: topic name by the 16 bytes of the topic id, the key of the fetch path.
    """

    def __init__(
        self,
        broker_id: int,
        logs: LogManager,
        limits: ReplicationConfig,
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
        """Called after LeaderAndIsr or StopReplica was applied, with each partition whose leader
        epoch, leadership or hosting changed (coordinators load and drop shards then).
        """
        self._on_leadership = on_leadership
        self._logs, self._folder_of = logs, logs.futures.folder_of
        self._limits = limits
        self._ports = ports
        self._overrides: dict[UUID, dict[str, str]] = {}
        logs.high_watermarks = self.high_watermark_of
        self._live: dict[int, LiveBroker] = {}
        self._alter_partition = AlterPartitionManager(
            broker_id, ports.broker_epoch, ports.clock, limits, ports.alter_partition
        )
        self.quotas = ReplicationQuotas(
            broker_id, ports.clock, limits.quota_windows, limits.log_dirs_quota_windows
        )
        self._fetchers = FetcherManager(
            broker_id, limits, ports, self.live_broker, self.quotas.follower
        )
        self.control_lock = asyncio.Lock()
        """Held while a control request is applied: they are applied in the order of arrival."""
        self._fence = ControlFence(ports.broker_epoch)
        self._applying = OrderedSet[asyncio.Task[LeaderAndIsrReply]]()

    # -- look-ups

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
        """The hosted replica, which leads. Raises also NOT_LEADER_OR_FOLLOWER."""
        found = self.lookup(topic, partition)
        found.check_leader_epoch(-1)
        return found

    def live_broker(self, broker_id: int) -> LiveBroker | None:
        """A live broker, by the metadata cache or by the live leaders of LeaderAndIsr."""
        return self._ports.broker(broker_id) or self._live.get(broker_id)

    # -- control requests

    async def handle_leader_and_isr(self, request: LeaderAndIsrRequest) -> LeaderAndIsrReply:
        """Become leader or follower per partition, with a turn of the loop after each one, so that
        opening hundreds of logs stalls nothing. Control requests are applied one by one, in order.
        """
        # To its end even when the caller gives up: a thread may be creating a log for it.
        task = asyncio.get_running_loop().create_task(self._apply_in_turns(request))
        self._applying.add(task)
        task.add_done_callback(self._applying.discard)
        return await asyncio.shield(task)

    async def _apply_in_turns(self, request: LeaderAndIsrRequest) -> LeaderAndIsrReply:
        async with self.control_lock:
            return await run_in_turns(self.leader_and_isr_steps(request), self._ports.off_loop)

    def apply_leader_and_isr(self, request: LeaderAndIsrRequest) -> LeaderAndIsrReply:
        """Apply LeaderAndIsr in one turn of the loop."""
        return run_now(self.leader_and_isr_steps(request))

    def leader_and_isr_steps(self, request: LeaderAndIsrRequest) -> LoopSteps[LeaderAndIsrReply]:
        """Apply LeaderAndIsr partition by partition, in steps. When this is ended between two
        partitions, the applied ones are fetched and listeners notified; the controller sends the
        request again."""
        error = self._fence.check(request)
        if error is not ErrorCode.NONE:
            return LeaderAndIsrReply(error_code=error)
        self._live.update((broker.broker_id, broker) for broker in request.live_leaders)
        for topic in request.topics:
            self._apply_configs(topic)
        results = []
        changed: list[Partition] = []
        following: list[Partition] = []
        try:
            for state in request.partitions:
                result = yield from self._apply_safely(state, changed, following)
                results.append(result)
                yield None
            if request.full:
                self._stop_absent(request, changed)
        finally:
            self._fetchers.follow(following)
            self._fetchers.drop_idle()
            self._notify_listeners(changed)
        return LeaderAndIsrReply(error_code=ErrorCode.NONE, partitions=tuple(results))

    async def handle_stop_replica(self, request: StopReplicaRequest) -> StopReplicaReply:
        """`stop_replica`, after the control requests before it."""
        async with self.control_lock:
            reply = self.stop_replica(request)
        if any(row.delete for row in request.partitions):
            await self._ports.durable()  # the controller never repeats a confirmed deletion
        return reply

    def stop_replica(self, request: StopReplicaRequest) -> StopReplicaReply:
        """Stop hosting replicas; with `delete`, remove the log, too (also of a replica that is not
        hosted: the topic was deleted while this broker was down).
        """
        error = self._fence.check(request)
        if error is not ErrorCode.NONE:
            return StopReplicaReply(error_code=error)
        changed: list[Partition] = []
        results = tuple(self._stop_one(row, changed) for row in request.partitions)
        self._fetchers.drop_idle()
        self._notify_listeners(changed)
        return StopReplicaReply(error_code=ErrorCode.NONE, partitions=results)

    def replica_state(self, request: ReplicaStateRequest) -> ReplicaStateReply:
        """Producer state and leader epochs at the local log start, where a follower will start."""
        partition = self.by_id.get((request.topic_id, request.partition))
        if partition is None:
            return ReplicaStateReply(error_code=ErrorCode.UNKNOWN_TOPIC_ID)
        return replica_state(partition, request.offset)

    def update_topic_configs(self, topic_id: UUID, overrides: Mapping[str, str]) -> None:
        """Apply a topic's config overrides: all that there are now."""
        if self._overrides.get(topic_id, {}) == overrides:
            return  # most new topics have none
        self._overrides[topic_id] = dict(overrides)
        config = self._ports.log_config(overrides)
        for partition in self.partitions.values():
            if partition.topic_id == topic_id:
                _reconfigure(partition, config)

    def update_log_configs(self) -> None:
        """Apply changed broker settings, the defaults of topic configs."""
        configs: dict[UUID, LogConfig] = {}
        for partition in self.partitions.values():
            config = configs.get(partition.topic_id)
            if config is None:
                config = configs[partition.topic_id] = self._config_of(partition.topic_id)
            if config != partition.log.config:
                _reconfigure(partition, config)

    # -- ticks and state

    def isr_tick(self) -> None:
        """Shrink ISRs; to be called every replica.lag.time.max.ms / 2."""
        now = self._ports.clock.monotonic()
        for partition in self.partitions.values():
            partition.isr_tick(now)

    def high_watermark_of(self, log: UnifiedLog) -> int:
        """The high watermark to write to `replication-offset-checkpoint`, for `LogManager`."""
        partition = self.partitions.get((log.topic, log.partition))
        if partition is None or partition.log is not log:
            return self._logs.high_watermark_checkpoint(log)
        return partition.high_watermark

    def directory_failed(self, folder: str, logs: list[UnifiedLog]) -> None:
        """Take the replicas of a failed log directory offline; the others go on."""
        _log.error("log directory %s failed: %d replicas go offline", folder, len(logs))
        for log in logs:
            partition = self.partitions.get((log.topic, log.partition))
            if partition is not None and partition.log is log:
                partition.fail_storage(folder)

    def describe_fetching(self) -> dict[str, Any]:
        """Fetchers for the status document; partitions have rows of their own."""
        return {
            "controller_epoch": self._fence.controller_epoch,
            "fetchers": self._fetchers.describe(),
        }

    @property
    def isr_shrinks_total(self) -> int:
        """ISRs of leaders here that shrank."""
        return self._alter_partition.shrinks_total

    @property
    def isr_expands_total(self) -> int:
        """ISRs of leaders here that grew."""
        return self._alter_partition.expands_total

    def begin_controlled_shutdown(self) -> None:
        """Do not start to follow the leaders that this broker hands over to from now on."""
        self._fetchers.begin_controlled_shutdown()

    async def close(self) -> None:
        """Stop fetchers and ISR changes; logs stay open until `LogManager` closes them."""
        for task in list(self._applying):
            task.cancel()
        await asyncio.gather(*self._applying, return_exceptions=True)
        await self._fetchers.close()
        await self._alter_partition.close()

    # -- one partition

    def _apply_configs(self, topic: TopicState) -> None:
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
        except KafkaError as rejected:
            _log.warning("LeaderAndIsr: %s", rejected)
            error = rejected.code
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
        transition = decide(
            None if hosted is None else hosted_replica(hosted),
            state.leader_epoch,
            state.partition_epoch,
            is_replica=self.broker_id in state.replicas,
            leads_here=state.leader_id == self.broker_id,
            has_changes=hosted is not None and differs(hosted, state),
        )
        if transition is RoleTransition.NOT_ASSIGNED:
            _log.warning("LeaderAndIsr: %s-%d: %s", state.topic, state.partition, transition.value)
            return None
        if transition in (RoleTransition.FAILED, RoleTransition.STALE):
            raise rejection(state, transition, hosted)
        partition = hosted or (yield from self._host(state))
        if transition is RoleTransition.UPDATE:
            partition.update_state(state)
        elif transition is RoleTransition.LEAD:
            yield from self._lead(partition, state)
            changed.append(partition)
        elif transition is RoleTransition.FOLLOW:
            partition.become_follower(state)
            following.append(partition)
            changed.append(partition)
        return partition

    def _lead(self, partition: Partition, state: PartitionState) -> LoopSteps[None]:
        self._fetchers.unfollow(partition)
        self._skip_assigned_offsets(partition)
        if not partition.is_leader:  # so nothing is appended meanwhile
            yield from begin_epoch(partition.log, state.leader_epoch)
            if partition.storage_error:  # its directory failed meanwhile
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, partition.offline_reason)
        partition.become_leader(state, partition.log.config.min_insync_replicas)
        is_empty = state.is_new and not partition.log.log_end_offset
        if partition.log.config.remote_storage and not is_empty and len(partition.isr) == 1:
            # Perhaps an unclean election: the end of the table known here may be too old.
            partition.set_awaits_tiered_end(True)

    def _skip_assigned_offsets(self, partition: Partition) -> None:
        """Offsets in the Delta table, and those from before a restore, are never assigned again."""
        log, key = partition.log, (partition.topic_id, partition.partition)
        ends = (self._ports.tiered_end(*key), self._ports.restored_end(*key))
        end = max((e for e in ends if e is not None), default=0)
        if log.log_end_offset < end:
            has_history = log.config.remote_storage
            partition.restart_at(end, log.log_start_offset if has_history else end)

    def _host(self, state: PartitionState) -> LoopSteps[Partition]:
        """Open or create the log. A replica of an older topic of the same name is dropped."""
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
            # An empty disk must never lead: a member of the ISR had a log here.
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{state.topic}-{state.partition}: asked to lead epoch {state.leader_epoch}, "
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
            propose=self._alter_partition.propose,
        )
        partition.on_leadership = self._on_leadership
        self.partitions[key] = partition
        self.by_id[(state.topic_id, state.partition)] = partition
        self.topic_ids[state.topic_id.bytes] = state.topic
        return partition

    def _has_log(self, state: PartitionState) -> bool:
        """True for a log of this topic id; an older topic of the same name does not count."""
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

    def _stop_absent(self, request: LeaderAndIsrRequest, changed: list[Partition]) -> None:
        """A full request names every replica of this broker. The others are stopped, and their logs
        stay: only StopReplica with `delete` removes data.
        """
        named = {(state.topic_id, state.partition) for state in request.partitions}
        for key, partition in list(self.by_id.items()):
            if key not in named and not partition.offline_reason:
                self._stop_hosted(partition, delete=False)
                changed.append(partition)

    def _notify_listeners(self, changed: list[Partition]) -> None:
        for partition in changed:
            for listener in self.leadership_listeners:
                listener(partition)


def _reconfigure(partition: Partition, config: LogConfig) -> None:
    partition.log.update_config(config)
    partition.set_min_insync_replicas(config.min_insync_replicas)


def describe_partition(partition: Partition) -> dict[str, Any]:
    """The row of one replica in the status document."""
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
