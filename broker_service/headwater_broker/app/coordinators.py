"""Joins coordinators with the replicas: their log, their leadership, deleted topics."""

from __future__ import annotations

import asyncio
import logging

from headwater.clock import Clock
from headwater.config.keys import Values
from headwater.entropy import Entropy
from headwater.errors import ErrorCode, KafkaError
from headwater.topic_names import OFFSETS_TOPIC
from headwater_broker.api.context import Purgatories
from headwater_broker.coordinator.group.config import GroupConfig
from headwater_broker.coordinator.group.service import GroupService
from headwater_broker.log.results import AppendOrigin
from headwater_broker.metadata.cache import MetadataCache, MetadataDelta
from headwater_broker.purgatory.purgatory import DelayedOperation, WatchedOffset
from headwater_broker.replica.manager import ReplicaManager
from headwater_broker.replica.partition import ACKS_ALL, Partition

LOAD_BYTES = 128 * 1024
"""Read at once when a shard is loaded: some 1,000 commits, 3 ms of the loop."""

logger = logging.getLogger(__name__)


class ReplicaAppender:
    """Implements `coordination.appender.Appender` for one topic."""

    def __init__(
        self, topic: str, replicas: ReplicaManager, purgatories: Purgatories, clock: Clock
    ) -> None:
        self._topic = topic
        self._replicas = replicas
        self._purgatories = purgatories
        self._clock = clock

    def append(self, partition: int, epoch: int, records: memoryview) -> int:
        """As the port says."""
        led = self._led(partition, epoch)
        now_ms = self._clock.now_ms()
        return led.append(records, ACKS_ALL, now_ms, AppendOrigin.COORDINATOR).last_offset

    def committed_end(self, partition: int, epoch: int) -> int:
        """As the port says."""
        return self._led(partition, epoch).high_watermark

    async def committed(self, partition: int, epoch: int, offset: int, timeout_ms: int) -> None:
        """As the port says."""
        led = self._led(partition, epoch)
        if led.high_watermark > offset:
            return
        waiter = _Committed(self._purgatories, led, offset, epoch)
        waiter.start(timeout_ms)
        try:
            await waiter.reached
        finally:
            self._purgatories.produce.complete(waiter)

    async def read_from(self, partition: int, epoch: int, offset: int) -> bytes:
        """As the port says. Up to the log's end: replies wait until that is committed."""
        led = self._led(partition, epoch)
        log = led.log
        start = max(offset, log.local_log_start_offset)
        if start >= log.log_end_offset:
            return b""
        part = log.read(start, LOAD_BYTES, log.log_end_offset, min_one=True)
        return part.file.read_at(part.position, part.size_bytes)

    def _led(self, partition: int, epoch: int) -> Partition:
        led = self._replicas.leader(self._topic, partition)
        if led.leader_epoch != epoch:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"{self._topic}-{partition}: leader epoch {epoch} is over, "
                f"it is {led.leader_epoch} now",
            )
        return led


class _Committed(DelayedOperation):
    """Waits for a high watermark."""

    __slots__ = ("_epoch", "_led", "_offset", "_purgatories", "reached")

    def __init__(self, purgatories: Purgatories, led: Partition, offset: int, epoch: int) -> None:
        super().__init__()
        self._purgatories = purgatories
        self._led = led
        self._offset = offset
        self._epoch = epoch
        self.reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def start(self, timeout_ms: int) -> None:
        """Park."""
        self._purgatories.produce.park(self, timeout_ms)
        self._watch()

    def _watch(self) -> None:
        self._purgatories.watches.watched_high_watermark(self._led).add(self._offset + 1, self)

    def check(self, gauge: WatchedOffset) -> None:
        """The high watermark moved, or leadership did."""
        led = self._led
        if not led.is_leader or led.leader_epoch != self._epoch:
            self._settle(
                KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{led!r}: its leadership ended")
            )
        elif led.high_watermark > self._offset:
            self._settle(None)
        else:
            self._watch()

    def expire(self) -> None:
        """Not in time."""
        detail = f"{self._led!r}: offset {self._offset} is not replicated yet"
        self._resolve(KafkaError(ErrorCode.REQUEST_TIMED_OUT, detail))

    def fail(self, error: Exception) -> None:
        """Whoever awaits it hears."""
        self._resolve(error)

    def _settle(self, error: KafkaError | None) -> None:
        if self._purgatories.produce.complete(self):
            self._resolve(error)

    def _resolve(self, error: Exception | None) -> None:
        if self.reached.done():
            return
        if error is None:
            self.reached.set_result(None)
        else:
            self.reached.set_exception(error)


class ViewPlacement:
    """Implements `groups.service.Placement` by the controller's word."""

    def __init__(self, view: MetadataCache, broker_id: int) -> None:
        self._view = view
        self._broker_id = broker_id

    def partition_count(self) -> int:
        """As the port says."""
        topic = self._view.topics.get(OFFSETS_TOPIC)
        return 0 if topic is None else len(topic.partitions)

    def leads(self, partition: int) -> bool:
        """As the port says."""
        state = self._view.partition(OFFSETS_TOPIC, partition)
        return state is not None and state.leader_id == self._broker_id


def group_config(v: Values) -> GroupConfig:
    """The settings of group coordinators."""
    return GroupConfig(
        min_session_timeout_ms=v.integer("group.min.session.timeout.ms"),
        max_session_timeout_ms=v.integer("group.max.session.timeout.ms"),
        initial_rebalance_delay_ms=v.integer("group.initial.rebalance.delay.ms"),
        max_size=v.integer("group.max.size"),
        offset_metadata_max_bytes=v.integer("offset.metadata.max.bytes"),
        offsets_retention_ms=v.integer("offsets.retention.minutes") * 60_000,
        offsets_check_interval_ms=v.integer("offsets.retention.check.interval.ms"),
    )


def build_groups(
    values: Values,
    replicas: ReplicaManager,
    purgatories: Purgatories,
    view: MetadataCache,
    clock: Clock,
    entropy: Entropy,
) -> GroupService:
    """The group coordinators, told of leadership and of deleted topics from now on."""

    groups = GroupService(
        ReplicaAppender(OFFSETS_TOPIC, replicas, purgatories, clock),
        clock,
        entropy,
        ViewPlacement(view, replicas.broker_id),
        group_config(values),
    )

    def leadership_changed(partition: Partition) -> None:
        if partition.topic != OFFSETS_TOPIC:
            return
        if partition.is_leader:
            groups.runtime.on_leader(partition.partition, partition.leader_epoch)
        else:
            groups.runtime.on_resign(partition.partition)

    removals: set[asyncio.Task[None]] = set()

    def view_changed(change: MetadataDelta) -> None:
        groups.stir()
        if change.deleted and groups.runtime.partitions:
            work = _remove_offsets(groups, change.deleted)
            task = asyncio.get_running_loop().create_task(work)
            removals.add(task)
            task.add_done_callback(removals.discard)

    replicas.leadership_listeners.append(leadership_changed)
    view.on_change.append(view_changed)
    return groups


async def _remove_offsets(groups: GroupService, topics: frozenset[str]) -> None:
    try:
        await groups.topics_deleted(topics)
    except KafkaError as error:
        logger.warning("offsets of deleted topics %s stay: %s", sorted(topics), error)
