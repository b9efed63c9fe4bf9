"""The broker's metadata cache: brokers, topics and leaders, as the controller sent them.

Only `apply` changes it. The values inside are frozen or replaced as a whole, so a handler may keep
what it read across an await.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, replace
from uuid import UUID

from headwater.errors import ErrorCode
from headwater.wire.control import (
    BrokerConfigs,
    LiveBroker,
    PartitionState,
    TopicState,
    UpdateMetadataReply,
    UpdateMetadataRequest,
)
from headwater.wire.control_order import ControllerOrder

NO_CONTROLLER = -1


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """One topic: its config overrides, and its partitions by index."""

    name: str
    topic_id: UUID
    configs: Mapping[str, str]
    partitions: Mapping[int, PartitionState]


@dataclass(frozen=True, slots=True)
class MetadataDelta:
    """The changes of one `apply`, for its listeners: coordinators, configs, purgatories."""

    full: bool
    topics: frozenset[str]
    configs: frozenset[str]
    deleted: frozenset[str]
    broker_configs: bool = False
    """The update held the dynamic broker configs."""
    client_quotas: bool = False
    """The update held the client quotas."""
    group_configs: bool = False
    """The update held the configs of groups."""


class MetadataCache:
    """Brokers, topics and leaders as this broker knows them; empty until the first full update."""

    def __init__(self, cluster_id: str, broker_epoch: Callable[[], int]) -> None:
        self.cluster_id = cluster_id
        self.controller_id = NO_CONTROLLER
        self.brokers: Mapping[int, LiveBroker] = {}
        self.topics: Mapping[str, TopicMetadata] = {}
        self.topic_by_id: Mapping[UUID, TopicMetadata] = {}
        self.broker_configs: Mapping[str, Mapping[str, str]] = {}
        """Dynamic configs by broker id as text; the empty name stands for all brokers."""
        self.client_quotas: Mapping[str, Mapping[str, str]] = {}
        """Client quotas by entity path (`headwater.config.quota_precedence`)."""
        self.group_configs: Mapping[str, Mapping[str, str]] = {}
        """Configs by group id (KIP-848), of the groups that have any."""
        self.is_complete = False
        self.on_change: list[Callable[[MetadataDelta], None]] = []
        self.on_brokers: list[Callable[[], None]] = []
        """Called when `brokers` may have changed."""
        self._broker_epoch = broker_epoch
        self._order = ControllerOrder()

    @property
    def controller_epoch(self) -> int:
        """The epoch of the controller that sent the last update; -1 before the first."""
        return self._order.controller_epoch

    def partition(self, topic: str, partition: int) -> PartitionState | None:
        """The partition's state; None if the topic or partition is unknown."""
        known = self.topics.get(topic)
        return known.partitions.get(partition) if known else None

    def hide_broker(self, broker_id: int) -> None:
        """Drop a broker that this one has found dead, before the controller's update.

        Metadata then answers LEADER_NOT_AVAILABLE for its partitions, and clients ask again at
        once. With the dead leader in the answer librdkafka would ask again only after a second.
        The controller's next update replaces this.
        """
        if broker_id in self.brokers:
            self.brokers = {b: live for b, live in self.brokers.items() if b != broker_id}
            self._notify_brokers_changed()

    def _notify_brokers_changed(self) -> None:
        for notify in self.on_brokers:
            notify()

    async def handle(self, request: UpdateMetadataRequest) -> UpdateMetadataReply:
        """Handle an UpdateMetadata request."""
        return UpdateMetadataReply(error_code=self.apply(request))

    def apply(self, request: UpdateMetadataRequest) -> ErrorCode:
        """Apply an update, unless a deposed controller sent it, it was overtaken by a later one, or
        it was meant for an earlier registration of this broker (a lower broker epoch, KIP-380)."""
        if self._order.is_old(request.controller_epoch, request.sequence):
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if request.broker_epoch < self._broker_epoch():
            return ErrorCode.STALE_BROKER_EPOCH
        if request.cluster_id != self.cluster_id:
            return ErrorCode.INCONSISTENT_CLUSTER_ID
        self._order.advance(request.controller_epoch, request.sequence)
        self.controller_id = request.controller_id
        self.brokers = {b.broker_id: b for b in request.brokers}
        if request.broker_configs is not None:
            self.broker_configs = _by_name(request.broker_configs)
        if request.client_quotas is not None:
            self.client_quotas = _by_name(request.client_quotas)
        if request.group_configs is not None:
            self.group_configs = _by_name(request.group_configs)
        change = self._apply_topics(request)
        self.is_complete = self.is_complete or request.full
        self._notify_brokers_changed()
        for notify in self.on_change:
            notify(change)
        return ErrorCode.NONE

    def _apply_topics(self, request: UpdateMetadataRequest) -> MetadataDelta:
        before = self.topics
        topics: dict[str, TopicMetadata] = {} if request.full else dict(before)
        configs = {t.topic for t in request.topics if _apply_topic(topics, t, before)}
        named: Iterable[str] = before if request.full else {t.topic for t in request.topics}
        deleted = {t.topic for t in request.topics if t.deleted and t.topic not in topics}
        deleted |= {name for name in named if _has_gone(before.get(name), topics.get(name))}
        grown: dict[str, dict[int, PartitionState]] = {}
        for state in request.partitions:
            known = topics.get(state.topic)
            if known is None or known.topic_id != state.topic_id:
                continue
            if state.topic not in grown:
                grown[state.topic] = dict(known.partitions)
            grown[state.topic][state.partition] = state
        for name, partitions in grown.items():
            topics[name] = replace(topics[name], partitions=partitions)
        self._enter(topics, grown.keys() | deleted | {t.topic for t in request.topics})
        return MetadataDelta(
            full=request.full,
            topics=frozenset(grown),
            configs=frozenset(configs),
            deleted=frozenset(deleted),
            broker_configs=request.broker_configs is not None,
            client_quotas=request.client_quotas is not None,
            group_configs=request.group_configs is not None,
        )

    def _enter(self, topics: dict[str, TopicMetadata], touched: Set[str]) -> None:
        """Index the topics by id. Only changed topics are hashed: that costs more than the rest."""
        by_id = dict(self.topic_by_id)
        for name in touched:
            if (before := self.topics.get(name)) is not None:
                by_id.pop(before.topic_id, None)
        for name in touched & topics.keys():
            by_id[topics[name].topic_id] = topics[name]
        self.topics, self.topic_by_id = topics, by_id


def _has_gone(was: TopicMetadata | None, now: TopicMetadata | None) -> bool:
    """Whether the topic is gone, also when a new topic has its name: nothing of the old one counts
    for the new one."""
    return was is not None and (now is None or now.topic_id != was.topic_id)


def _by_name(rows: Iterable[BrokerConfigs]) -> dict[str, dict[str, str]]:
    return {row.name: {c.name: c.value for c in row.configs if c.value is not None} for row in rows}


def _apply_topic(
    topics: dict[str, TopicMetadata], state: TopicState, before: Mapping[str, TopicMetadata]
) -> bool:
    """Add, change or drop one topic; True if its configs changed."""
    known = topics.get(state.topic)
    if state.deleted:
        # The name may belong to a newer topic already: drop only the deleted topic id.
        if known is not None and known.topic_id == state.topic_id:
            del topics[state.topic]
        return False
    configs = {c.name: c.value for c in state.configs if c.value is not None}
    is_same = known is not None and known.topic_id == state.topic_id
    partitions = known.partitions if known is not None and is_same else {}
    topics[state.topic] = TopicMetadata(
        name=state.topic, topic_id=state.topic_id, configs=configs, partitions=partitions
    )
    old = before.get(state.topic)
    return old is None or old.topic_id != state.topic_id or old.configs != configs
