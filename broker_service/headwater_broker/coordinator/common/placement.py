"""Which broker coordinates a key: the leader of the key's partition, by the metadata cache."""

from __future__ import annotations

from typing import Protocol

from headwater_broker.metadata.cache import MetadataCache


class Placement(Protocol):
    """What this broker knows of the partitions of an internal topic."""

    def partition_count(self) -> int:
        """How many partitions the topic has; 0: none is known."""
        ...

    def leads(self, partition: int) -> bool:
        """True when the controller has named this broker as the leader."""
        ...


class MetadataPlacement:
    """Implements `Placement` by the metadata cache."""

    def __init__(self, topic: str, view: MetadataCache, broker_id: int) -> None:
        self._topic = topic
        self._view = view
        self._broker_id = broker_id

    def partition_count(self) -> int:
        """See `Placement`."""
        topic = self._view.topics.get(self._topic)
        return 0 if topic is None else len(topic.partitions)

    def leads(self, partition: int) -> bool:
        """See `Placement`."""
        state = self._view.partition(self._topic, partition)
        return state is not None and state.leader_id == self._broker_id
