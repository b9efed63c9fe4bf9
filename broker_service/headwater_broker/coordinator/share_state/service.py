"""The share coordinators of this broker, as the API handlers and the broker's own persister use
them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import cast
from uuid import UUID

from headwater.errors import ErrorCode, KafkaError
from headwater.ids import id_from_text, id_text
from headwater.ordered import OrderedSet
from headwater.topic_names import SHARE_STATE_TOPIC
from headwater.wire.primitives import INT16_MAX
from headwater_broker.coordinator.common.service import CoordinatorParts, CoordinatorService
from headwater_broker.coordinator.common.shard import Command
from headwater_broker.coordinator.share_state.config import ShareCoordinatorConfig
from headwater_broker.coordinator.share_state.log_histories import load_histories
from headwater_broker.coordinator.share_state.shard import ShareStateShard
from headwater_broker.metadata.cache import TopicMetadata
from headwater_broker.replica.share.ports import SharePartitionKey, ShareState, ShareStateSummary

logger = logging.getLogger(__name__)


def coordinator_key(key: SharePartitionKey) -> str:
    """The key of a share partition's coordinator, as FindCoordinator takes it."""
    return f"{key.group_id}:{id_text(key.topic_id)}:{key.partition}"


def parse_coordinator_key(text: str) -> SharePartitionKey:
    """The share partition of a coordinator key. Raises INVALID_REQUEST.

    A group id may hold colons, the other two parts cannot.
    """
    parts = text.rsplit(":", 2)
    try:
        group_id, topic_id, partition = parts
        found = SharePartitionKey(group_id, id_from_text(topic_id), int(partition))
    except ValueError:
        found = None
    if found is None or not found.group_id or coordinator_key(found) != text:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"{text!r} names no share partition: group:topic id:partition is expected",
        )
    return found


class ShareStateService:
    """Runs each request on the shard of its share partition; a local
    `replica.share.ports.Persister`. All methods raise KafkaError: NOT_COORDINATOR,
    COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, INVALID_REQUEST, and their own.
    """

    def __init__(self, parts: CoordinatorParts, config: ShareCoordinatorConfig) -> None:
        self._config = config
        self._view = parts.view
        self._clock = parts.clock
        self._log = parts.appender(SHARE_STATE_TOPIC)
        self._topics: Mapping[str, TopicMetadata] = {}
        """As the metadata cache had them before its last change."""
        self._looked_ms: dict[int, float] = {}
        """Partition -> when its log was last looked at, on the steady clock."""
        self._unknown: dict[int, frozenset[UUID]] = {}
        """Partition -> topics of its share partitions that the metadata cache lacked then."""
        self._tasks = OrderedSet[asyncio.Task[None]]()
        self.prunes = 0
        """How often a log was pruned."""
        self.coordinator: CoordinatorService[ShareStateShard] = CoordinatorService(
            SHARE_STATE_TOPIC,
            lambda _partition: ShareStateShard(config),
            self._log,
            parts.placement(SHARE_STATE_TOPIC),
            parts.clock,
            topics_deleted=self._topics_deleted,
            write_timeout_ms=config.write_timeout_ms,
            on_committed=self._committed,
            load=load_histories,
        )

    async def close(self) -> None:
        """Drop every shard."""
        await self.coordinator.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- requests

    async def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int) -> None:
        """See `Persister`. Raises UNKNOWN_TOPIC_OR_PARTITION, FENCED_STATE_EPOCH."""
        self._check(key)
        await self.coordinator.run(
            coordinator_key(key),
            lambda s, now, t: s.initialize(key, state_epoch, start_offset, now, t),
        )

    async def read(self, key: SharePartitionKey, leader_epoch: int) -> ShareState:
        """See `Persister`. Raises UNKNOWN_TOPIC_OR_PARTITION, FENCED_LEADER_EPOCH."""
        self._check(key)
        reply = await self.coordinator.run(
            coordinator_key(key), lambda s, now, t: s.read(key, leader_epoch, now, t)
        )
        return cast(ShareState, reply)

    async def write(self, key: SharePartitionKey, state: ShareState) -> None:
        """See `Persister`. Raises UNKNOWN_TOPIC_OR_PARTITION, FENCED_LEADER_EPOCH,
        FENCED_STATE_EPOCH."""
        self._check(key)
        await self.coordinator.run(
            coordinator_key(key), lambda s, now, t: s.write(key, state, now, t)
        )

    async def delete(self, key: SharePartitionKey) -> None:
        """See `Persister`. The topic may be gone already."""
        _check_name(key)
        await self.coordinator.run(coordinator_key(key), lambda s, now, t: s.delete(key, now, t))

    async def read_summary(self, key: SharePartitionKey) -> ShareStateSummary:
        """See `Persister`. Raises UNKNOWN_TOPIC_OR_PARTITION."""
        self._check(key)
        reply = await self.coordinator.run(
            coordinator_key(key), lambda s, now, t: s.read_summary(key, now, t)
        )
        return cast(ShareStateSummary, reply)

    def _check(self, key: SharePartitionKey) -> None:
        _check_name(key)
        topic = self._view.topic_by_id.get(key.topic_id)
        if topic is None or key.partition not in topic.partitions:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"partition {key.partition} of the topic with id {id_text(key.topic_id)} is not "
                "known here",
            )

    # -- what happens around it

    def _topics_deleted(self, names: frozenset[str]) -> Command[ShareStateShard]:
        before = self._topics
        gone = {known.topic_id for name in names if (known := before.get(name)) is not None}
        gone -= self._view.topic_by_id.keys()
        return _forget(frozenset(gone))

    def remember_topics(self, _change: object) -> None:
        """A listener of `MetadataCache.on_change`, after that of the coordinator: a later change
        names deleted topics, of which only their ids are known here."""
        self._topics = self._view.topics

    def _committed(self, partition: int, epoch: int, shard: ShareStateShard, end: int) -> None:
        """The high watermark has moved: look at the log once in a while."""
        now_ms = self._clock.monotonic() * 1000
        looked_ms = self._looked_ms.setdefault(partition, now_ms)
        if now_ms - looked_ms < self._config.prune_interval_ms or not shard.is_settled(end):
            return
        self._looked_ms[partition] = now_ms
        self._prune(partition, epoch, shard.oldest_needed())
        self._forget_orphans(partition, shard)

    def _prune(self, partition: int, epoch: int, offset: int) -> None:
        try:
            self._log.delete_before(partition, epoch, offset)
            self.prunes += 1
        except KafkaError as error:  # the leadership is over: its successor prunes
            logger.info("%s-%d is not pruned: %s", SHARE_STATE_TOPIC, partition, error)

    def _forget_orphans(self, partition: int, shard: ShareStateShard) -> None:
        """Forget share partitions of topics that were deleted while no coordinator of theirs was
        there to hear of it: the metadata cache has lacked them for two looks in a row."""
        known = self._view.topic_by_id
        unknown = frozenset({key.topic_id for key in shard.states} - known.keys())
        before = self._unknown.get(partition, frozenset())
        self._unknown[partition] = unknown
        gone = unknown & before
        if gone and self._view.is_complete:
            task = asyncio.get_running_loop().create_task(
                self._run_on(partition, _forget(gone), "share partitions of deleted topics")
            )
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _run_on(self, partition: int, command: Command[ShareStateShard], what: str) -> None:
        try:
            await self.coordinator.runtime.run(partition, command)
        except KafkaError as error:
            logger.warning("%s-%d: cannot remove %s: %s", SHARE_STATE_TOPIC, partition, what, error)


def _forget(topic_ids: frozenset[UUID]) -> Command[ShareStateShard]:
    is_deleted: Callable[[UUID], bool] = topic_ids.__contains__
    return lambda shard, now, token: shard.forget_topics(is_deleted, now, token)


def _check_name(key: SharePartitionKey) -> None:
    """Raises INVALID_REQUEST for a share partition that no record can name."""
    size = len(key.group_id.encode())
    if not 0 < size <= INT16_MAX or key.partition < 0:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"partition {key.partition} of a share group whose id has {size} bytes: 1 to "
            f"{INT16_MAX} bytes and a partition of 0 or more are expected",
        )
