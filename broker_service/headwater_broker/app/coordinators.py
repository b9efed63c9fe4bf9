"""Joins coordinators with the replicas: their log, their leadership, deleted topics."""

from __future__ import annotations

import asyncio
import logging

from headwater.clock import Clock
from headwater.config.keys import Values
from headwater.entropy import Entropy
from headwater.errors import KafkaError
from headwater.topic_names import OFFSETS_TOPIC
from headwater_broker.coordinator.group.config import GroupConfig
from headwater_broker.coordinator.group.service import GroupService
from headwater_broker.log.results import AppendOrigin
from headwater_broker.metadata.cache import MetadataCache, MetadataDelta
from headwater_broker.replica.append_service import AppendService, check_led
from headwater_broker.replica.manager import ReplicaManager
from headwater_broker.replica.partition import Partition
from headwater_broker.replica.read_service import log_bytes

LOAD_BYTES = 128 * 1024
"""Read at once when a shard is loaded: some 1,000 commits, 3 ms of the loop."""

logger = logging.getLogger(__name__)


class ReplicaAppender:
    """Implements `coordination.appender.Appender` for one topic."""

    def __init__(self, topic: str, replicas: ReplicaManager, appends: AppendService) -> None:
        self._topic = topic
        self._replicas = replicas
        self._appends = appends

    def append(self, partition: int, epoch: int, records: memoryview) -> int:
        """As the port says."""
        led = self._replicas.leader(self._topic, partition)
        origin = AppendOrigin.COORDINATOR
        return self._appends.append(led, records, origin=origin, leader_epoch=epoch).last_offset

    def committed_end(self, partition: int, epoch: int) -> int:
        """As the port says."""
        led = self._replicas.leader(self._topic, partition)
        check_led(led, epoch)
        return led.high_watermark

    async def committed(self, partition: int, epoch: int, offset: int, timeout_ms: int) -> None:
        """As the port says."""
        led = self._replicas.leader(self._topic, partition)
        await self._appends.committed(led, offset, epoch, timeout_ms)

    async def read_from(self, partition: int, epoch: int, offset: int) -> bytes:
        """As the port says. Up to the log's end: replies wait until that is committed."""
        led = self._replicas.leader(self._topic, partition)
        return log_bytes(led, epoch, offset, LOAD_BYTES)


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
    appends: AppendService,
    view: MetadataCache,
    clock: Clock,
    entropy: Entropy,
) -> GroupService:
    """The group coordinators, told of leadership and of deleted topics from now on."""

    groups = GroupService(
        ReplicaAppender(OFFSETS_TOPIC, replicas, appends),
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
