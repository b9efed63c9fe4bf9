"""A member of a consumer group (KIP-848): Kafka's ConsumerGroupMember. Pure values.

All of it is durable: what the member asked for (record type 5), and where it is on its way to the
target assignment (record type 8).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from uuid import UUID

from headwater_broker.coordinator.group.consumer.states import MemberState

LEAVE_EPOCH = -1
"""A member leaves."""
STATIC_LEAVE_EPOCH = -2
"""A static member goes away for a while and keeps its partitions."""

Owned = Mapping[UUID, Mapping[int, int]]
"""By topic id: partition -> the member epoch in which it was assigned."""
Named = Mapping[UUID, frozenset[int]]
"""Partition numbers by topic id; no topic has an empty set."""
NOTHING: Owned = {}


@dataclass(frozen=True, slots=True)
class ClassicSide:
    """Of a member that still uses the classic protocol: what its JoinGroup said."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    """(name, metadata) in its order of preference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMember:
    """One member."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    """The topics that it names; it need not be able to find them."""
    regex: str | None = None
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    """The server-side assignor that it asks for."""
    classic: ClassicSide | None = None
    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Owned = field(default_factory=dict)
    revoking: Owned = field(default_factory=dict)
    """Partitions that it must give up, and may still work on."""

    @property
    def is_away(self) -> bool:
        """True while a static member is away for a moment."""
        return self.epoch == STATIC_LEAVE_EPOCH

    def is_reconciled_to(self, target_epoch: int) -> bool:
        """True when it has all of its part of the target of this epoch."""
        return self.state is MemberState.STABLE and self.epoch == target_epoch

    def has_metadata_of(self, other: ConsumerMember) -> bool:
        """True when its record of type 5 is that of `other`."""
        return (
            self.instance_id == other.instance_id
            and self.rack_id == other.rack_id
            and self.client_id == other.client_id
            and self.client_host == other.client_host
            and self.topics == other.topics
            and self.regex == other.regex
            and self.rebalance_timeout_ms == other.rebalance_timeout_ms
            and self.assignor == other.assignor
            and self.classic == other.classic
        )

    def has_position_of(self, other: ConsumerMember) -> bool:
        """True when its record of type 8 is that of `other`."""
        return (
            self.epoch == other.epoch
            and self.previous_epoch == other.previous_epoch
            and self.state == other.state
            and self.assigned == other.assigned
            and self.revoking == other.revoking
        )

    def asking(
        self,
        *,
        instance_id: str | None,
        rack_id: str | None,
        client_id: str,
        client_host: str,
        topics: frozenset[str],
        regex: str | None,
        rebalance_timeout_ms: int,
        assignor: str | None,
        classic: ClassicSide | None,
    ) -> ConsumerMember:
        """With all of this, at the same place on its way."""
        return replace(
            self,
            instance_id=instance_id,
            rack_id=rack_id,
            client_id=client_id,
            client_host=client_host,
            topics=topics,
            regex=regex,
            rebalance_timeout_ms=rebalance_timeout_ms,
            assignor=assignor,
            classic=classic,
        )

    def at(
        self, *, epoch: int, previous_epoch: int, state: MemberState, assigned: Owned,
        revoking: Owned,
    ) -> ConsumerMember:  # fmt: skip
        """At this place on its way."""
        return replace(
            self,
            epoch=epoch,
            previous_epoch=previous_epoch,
            state=state,
            assigned=assigned,
            revoking=revoking,
        )

    def moved(
        self, epoch: int, state: MemberState, assigned: Owned, revoking: Owned = NOTHING
    ) -> ConsumerMember:
        """It goes to a later epoch, or stays in this one."""
        previous = self.epoch if epoch != self.epoch else self.previous_epoch
        return self.at(
            epoch=epoch,
            previous_epoch=previous,
            state=state,
            assigned=assigned,
            revoking=revoking,
        )

    def assignment_epoch(self, topic_id: UUID, partition: int) -> int | None:
        """The epoch in which the partition was assigned to it; None: it does not hold it."""
        for held in (self.assigned, self.revoking):
            epoch = held.get(topic_id, {}).get(partition)
            if epoch is not None:
                return epoch
        return None

    def owns_only_assigned(self, owned: Named | None) -> bool:
        """True when the member says what it owns, and all of that is assigned to it."""
        if owned is None:
            return False
        return all(
            partitions <= self.assigned.get(topic_id, {}).keys()
            for topic_id, partitions in owned.items()
        )


def named(owned: Owned) -> dict[UUID, frozenset[int]]:
    """Without the epochs."""
    return {topic_id: frozenset(partitions) for topic_id, partitions in owned.items()}


def in_epoch(partitions: Mapping[UUID, Iterable[int]], epoch: int) -> dict[UUID, dict[int, int]]:
    """All of these, assigned in one epoch; topics without partitions are left out."""
    found = {topic: dict.fromkeys(sorted(rows), epoch) for topic, rows in partitions.items()}
    return {topic: rows for topic, rows in found.items() if rows}
