"""Placement of keys: the leader of the partition that a key's hash names coordinates it."""

from __future__ import annotations

from functools import lru_cache
from typing import Protocol

from headwater_broker.metadata.cache import MetadataCache


class Placement(Protocol):
    """The partitions of an internal topic, as this broker knows them."""

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


INT_MIN = -(2**31)


@lru_cache(maxsize=10_000)
def java_hash(text: str) -> int:
    """String.hashCode: over UTF-16 code units, wrapping at 32 bits."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return value - 2**32 if value & 0x80000000 else value


@lru_cache(maxsize=10_000)
def partition_of(key: str, partitions: int) -> int:
    """The partition of `key`; Kafka's Utils.abs maps the smallest int to 0."""
    value = java_hash(key)
    return 0 if value == INT_MIN else abs(value) % partitions
