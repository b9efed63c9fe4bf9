"""The topics of a consumer group (KIP-848): what members name, and what their patterns stand for.

A pattern that is not resolved yet stands for no topic. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple, Protocol
from uuid import UUID

from headwater_broker.coordinator.group.consumer.member import ConsumerMember

NO_HASH = 0
"""The hash of no topics."""


@dataclass(frozen=True, slots=True)
class ResolvedRegex:
    """The topics that a pattern stands for."""

    topics: frozenset[str]
    version: int = 0
    """Rises with each resolution of the group's patterns."""
    timestamp_ms: int = 0


class KnownTopic(NamedTuple):
    """A topic as the cluster's metadata has it."""

    name: str
    topic_id: UUID
    partitions: int


class Topics(Protocol):
    """The cluster's topics as this broker knows them."""

    def by_name(self, name: str) -> KnownTopic | None:
        """None: there is none of this name."""
        ...

    def by_id(self, topic_id: UUID) -> KnownTopic | None:
        """None: deleted, or not known yet."""
        ...

    def names(self) -> list[str]:
        """Of all topics."""
        ...

    def racks(self, topic_id: UUID) -> tuple[frozenset[str], ...]:
        """Of each partition the racks of its replicas; empty when none are known."""
        ...


class NoTopics:
    """A cluster without topics."""

    def by_name(self, _name: str) -> KnownTopic | None:
        """None."""
        return None

    def by_id(self, _topic_id: UUID) -> KnownTopic | None:
        """None."""
        return None

    def names(self) -> list[str]:
        """None."""
        return []

    def racks(self, _topic_id: UUID) -> tuple[frozenset[str], ...]:
        """Empty."""
        return ()


def topics_of(member: ConsumerMember, regexes: Mapping[str, ResolvedRegex]) -> frozenset[str]:
    """The names of the topics that a member subscribes to."""
    if member.regex is None:
        return member.topics
    resolved = regexes.get(member.regex)
    return member.topics if resolved is None else member.topics | resolved.topics


def metadata_hash(names: Iterable[str], topics: Topics) -> int:
    """64 bits that change when one of the topics is created, deleted or given more partitions.

    Replicas that move do not count: they are no reason for a rebalance.
    """
    digest = blake2b(digest_size=8)
    is_empty = True
    for name in sorted(names):
        known = topics.by_name(name)
        if known is not None:
            is_empty = False
            digest.update(known.topic_id.bytes)
            digest.update(known.partitions.to_bytes(4, "big"))
    if is_empty:
        return NO_HASH
    return int.from_bytes(digest.digest(), "big", signed=True)
