"""A share group (KIP-932) and its members, as the records make them (Kafka's `ShareGroup`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple
from uuid import UUID

from headwater_broker.coordinator.group.group_kind import GroupKind
from headwater_broker.coordinator.group.records import OffsetCommitValue, TopicPartition
from headwater_broker.coordinator.group.share.assignor import Target


class ShareGroupState(Enum):
    """Kafka's names."""

    EMPTY = "Empty"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True)
class ShareMember:
    """A member; `assigned`: the partitions in its last response."""

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    epoch: int = 0
    previous_epoch: int = 0
    assigned: Target = field(default_factory=dict)

    def moved(self, epoch: int, assigned: Target) -> ShareMember:
        """The member at a newer target."""
        previous = self.previous_epoch if epoch == self.epoch else self.epoch
        return replace(self, epoch=epoch, previous_epoch=previous, assigned=assigned)


class TopicShare(NamedTuple):
    """Partitions of a topic whose states begin or have begun."""

    name: str
    partitions: frozenset[int]


@dataclass(frozen=True, slots=True)
class SharePartitions:
    """The share partitions of a group (record 15)."""

    initializing: Mapping[UUID, TopicShare] = field(default_factory=dict)
    initialized: Mapping[UUID, TopicShare] = field(default_factory=dict)
    deleting: Mapping[UUID, str] = field(default_factory=dict)

    def begun(self, topics: Mapping[UUID, TopicShare]) -> SharePartitions:
        """These begin. Of topics whose states are being deleted that must end first."""
        return SharePartitions(
            _plus(self.initializing, topics), _minus(self.initialized, topics), self.deleting
        )

    def done(self, topics: Mapping[UUID, TopicShare]) -> SharePartitions:
        """The states of these have begun; partitions that are not initializing any more are left
        out."""
        ready = {
            topic: TopicShare(known.name, known.partitions & share.partitions)
            for topic, share in topics.items()
            if (known := self.initializing.get(topic)) is not None
        }
        return SharePartitions(
            _minus(self.initializing, ready), _plus(self.initialized, ready), self.deleting
        )

    def without(self, topics: Iterable[UUID]) -> SharePartitions:
        """Without these topics."""
        gone = set(topics)
        return SharePartitions(
            {t: share for t, share in self.initializing.items() if t not in gone},
            {t: share for t, share in self.initialized.items() if t not in gone},
            {t: name for t, name in self.deleting.items() if t not in gone},
        )

    def doomed(self, topics: Mapping[UUID, str]) -> SharePartitions:
        """The states of these topics are being deleted."""
        rest = self.without(topics)
        return SharePartitions(rest.initializing, rest.initialized, {**rest.deleting, **topics})

    def of_topic(self, topic_id: UUID) -> frozenset[int]:
        """Partitions of the topic that have a state, or will."""
        rows = (self.initializing.get(topic_id), self.initialized.get(topic_id))
        return frozenset(index for row in rows if row is not None for index in row.partitions)

    def topics(self) -> dict[UUID, str]:
        """Every topic with its name."""
        rows = (*self.initializing.items(), *self.initialized.items())
        return {**self.deleting, **{topic: share.name for topic, share in rows}}

    def keys(self) -> Iterator[tuple[UUID, int]]:
        """(topic id, partition) of every state."""
        for topic in self.topics():
            for index in sorted(self.of_topic(topic)):
                yield topic, index


def _plus(
    one: Mapping[UUID, TopicShare], other: Mapping[UUID, TopicShare]
) -> dict[UUID, TopicShare]:
    out = dict(one)
    for topic, share in other.items():
        known = out.get(topic)
        partitions = share.partitions | (known.partitions if known else frozenset())
        if partitions:
            out[topic] = TopicShare(share.name, partitions)
    return out


def _minus(
    one: Mapping[UUID, TopicShare], other: Mapping[UUID, TopicShare]
) -> dict[UUID, TopicShare]:
    out = {}
    for topic, share in one.items():
        taken = other.get(topic)
        left = share.partitions - (taken.partitions if taken else frozenset())
        if left:
            out[topic] = TopicShare(share.name, left)
    return out


@dataclass(slots=True)
class ShareGroup:
    """Only replay changes it, but for the last two fields."""

    group_id: str
    epoch: int = 0
    metadata_hash: int = 0
    members: dict[str, ShareMember] = field(default_factory=dict)
    target_epoch: int = 0
    target_ms: int = 0
    """When the target was computed, since 1970."""
    targets: dict[str, Target] = field(default_factory=dict)
    shares: SharePartitions = field(default_factory=SharePartitions)
    offsets: dict[TopicPartition, OffsetCommitValue] = field(default_factory=dict)
    """Always empty: share groups commit none."""
    needs_refresh: bool = True
    """Topics may have changed since the members' were looked at."""
    asked_ms: float | None = None
    """When states were last asked to begin, on the steady clock."""

    @property
    def kind(self) -> GroupKind:
        """Share."""
        return GroupKind.SHARE

    @property
    def protocol_type(self) -> str:
        """As Kafka lists it."""
        return "share"

    @property
    def is_empty(self) -> bool:
        """True without members."""
        return not self.members

    @property
    def state(self) -> ShareGroupState:
        """Empty or Stable."""
        return ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY

    def subscribed_topics(self) -> set[str] | None:
        """The topics that members name."""
        return {name for member in self.members.values() for name in member.topics}
