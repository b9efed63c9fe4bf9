"""The cluster's topics for the coordinators of groups, out of the broker's metadata cache."""

from __future__ import annotations

from uuid import UUID

from headwater_broker.coordinator.group.consumer.subscriptions import KnownTopic
from headwater_broker.metadata.cache import MetadataCache, TopicMetadata


class ClusterTopics:
    """Implements `Topics`."""

    def __init__(self, view: MetadataCache) -> None:
        self._view = view

    def by_name(self, name: str) -> KnownTopic | None:
        """None: there is none of this name."""
        return _known(self._view.topics.get(name))

    def by_id(self, topic_id: UUID) -> KnownTopic | None:
        """None: deleted, or not known yet."""
        return _known(self._view.topic_by_id.get(topic_id))

    def names(self) -> list[str]:
        """Of all topics."""
        return list(self._view.topics)

    def racks(self, topic_id: UUID) -> tuple[frozenset[str], ...]:
        """Of each partition the racks of its replicas; empty when a broker's is not known."""
        topic = self._view.topic_by_id.get(topic_id)
        if topic is None:
            return ()
        rack_of = {broker_id: live.rack for broker_id, live in self._view.brokers.items()}
        rows = []
        for index in sorted(topic.partitions):
            racks = [rack_of.get(replica) for replica in topic.partitions[index].replicas]
            rows.append(frozenset(rack for rack in racks if rack))
        return tuple(rows) if all(rows) else ()


def _known(topic: TopicMetadata | None) -> KnownTopic | None:
    return None if topic is None else KnownTopic(topic.name, topic.topic_id, len(topic.partitions))
