"""The cluster as the controller told this broker: what Metadata answers are made of.

One holder per broker, changed only by `apply`. The values inside are frozen or replaced whole, so a
handler may keep what it read across an await. Kafka's counterpart is the metadata cache.
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
    """One topic: its config overrides and its partitions by index."""

    name: str
    topic_id: UUID
    configs: Mapping[str, str]
    partitions: Mapping[int, PartitionState]


@dataclass(frozen=True, slots=True)
class MetadataDelta:
    """What one `apply` changed, for those that react: groups, configs, purgatories."""

    full: bool
    topics: frozenset[str]
    configs: frozenset[str]
    deleted: frozenset[str]
    broker_configs: bool = False
    """The dynamic configs of brokers were told anew."""
    client_quotas: bool = False
    """Client quotas were told anew."""


class MetadataCache:
    """This broker's view of brokers, topics and leaders; empty until the first full update."""

    def __init__(self, cluster_id: str, broker_epoch: Callable[[], int]) -> None:
        self.cluster_id = cluster_id
        self.controller_id = NO_CONTROLLER
        self.brokers: Mapping[int, LiveBroker] = {}
        self.topics: Mapping[str, TopicMetadata] = {}
        self.topic_by_id: Mapping[UUID, TopicMetadata] = {}
        self.broker_configs: Mapping[str, Mapping[str, str]] = {}
        """Dynamic configs by broker id as text; the empty name counts for every broker."""
        self.client_quotas: Mapping[str, Mapping[str, str]] = {}
        """Client quotas by entity path (`headwater.config.quotas`)."""
        self.is_complete = False
        self.on_change: list[Callable[[MetadataDelta], None]] = []
        self.on_brokers: list[Callable[[], None]] = []
        """Called when `brokers` may name others than before."""
        self._broker_epoch = broker_epoch
        self._order = ControllerOrder()

    @property
    def controller_epoch(self) -> int:
        """Of the controller that told this; -1: none has."""
        return self._order.controller_epoch

    def partition(self, topic: str, partition: int) -> PartitionState | None:
        """The partition's state, or None when topic or partition is unknown here."""
        known = self.topics.get(topic)
        return known.partitions.get(partition) if known else None

    def hide_broker(self, broker_id: int) -> None:
        """A peer is known to be dead before the controller has said so: name it no more.

        Clients that ask now are told LEADER_NOT_AVAILABLE and ask again at once; the old leader's
        name would satisfy them, and librdkafka then looks again only after a second. The
        controller's next word replaces this.
        """
        if broker_id in self.brokers:
            self.brokers = {b: live for b, live in self.brokers.items() if b != broker_id}
            self._tell_brokers()

    def _tell_brokers(self) -> None:
        for notify in self.on_brokers:
            notify()

    async def handle(self, request: UpdateMetadataRequest) -> UpdateMetadataReply:
        """The control handler of UpdateMetadata."""
        return UpdateMetadataReply(error_code=self.apply(request))

    def apply(self, request: UpdateMetadataRequest) -> ErrorCode:
        """Take the controller's word, unless it is of a deposed controller or a past life of ours,
        or comes after what was said later.

        A request for an older broker epoch was meant for the previous registration (KIP-380).
        """
        if self._order.is_old(request.controller_epoch, request.sequence):
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if request.broker_epoch < self._broker_epoch():
            return ErrorCode.STALE_BROKER_EPOCH
        if request.cluster_id != self.cluster_id:
            return ErrorCode.INCONSISTENT_CLUSTER_ID
        self._order.take(request.controller_epoch, request.sequence)
        self.controller_id = request.controller_id
        self.brokers = {b.broker_id: b for b in request.brokers}
        if request.broker_configs is not None:
            self.broker_configs = _by_name(request.broker_configs)
        if request.client_quotas is not None:
            self.client_quotas = _by_name(request.client_quotas)
        change = self._apply_topics(request)
        self.is_complete = self.is_complete or request.full
        self._tell_brokers()
        for notify in self.on_change:
            notify(change)
        return ErrorCode.NONE

    def _apply_topics(self, request: UpdateMetadataRequest) -> MetadataDelta:
        before = self.topics
        topics: dict[str, TopicMetadata] = {} if request.full else dict(before)
        configs = {t.topic for t in request.topics if _apply_topic(topics, t, before)}
        told: Iterable[str] = before if request.full else {t.topic for t in request.topics}
        deleted = {t.topic for t in request.topics if t.deleted and t.topic not in topics}
        deleted |= {name for name in told if _has_gone(before.get(name), topics.get(name))}
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
        )

    def _enter(self, topics: dict[str, TopicMetadata], touched: Set[str]) -> None:
        """Hashing ids and comparing names costs more than all else: only of touched topics."""
        by_id = dict(self.topic_by_id)
        for name in touched:
            if (before := self.topics.get(name)) is not None:
                by_id.pop(before.topic_id, None)
        for name in touched & topics.keys():
            by_id[topics[name].topic_id] = topics[name]
        self.topics, self.topic_by_id = topics, by_id


def _has_gone(was: TopicMetadata | None, now: TopicMetadata | None) -> bool:
    """Also when another topic has its name already: what was kept of the old one is none of it."""
    return was is not None and (now is None or now.topic_id != was.topic_id)


def _by_name(rows: Iterable[BrokerConfigs]) -> dict[str, dict[str, str]]:
    return {row.name: {c.name: c.value for c in row.configs if c.value is not None} for row in rows}


def _apply_topic(
    topics: dict[str, TopicMetadata], state: TopicState, before: Mapping[str, TopicMetadata]
) -> bool:
    """Enter, change or drop one topic; True when its configs differ from what was known."""
    known = topics.get(state.topic)
    if state.deleted:
        # The name may already belong to a newer topic: only the id that was deleted goes.
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
