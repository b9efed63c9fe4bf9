"""A consumer group (KIP-848) and its members: Kafka's ConsumerGroup. Changed by replay only.

The group's epoch rises with members, subscriptions and topics; the target assignment is computed
for an epoch and has it; each member takes its part and then has it, too. `target` chooses the
assignor. What is not stored (timers beside it, whether topics changed) is built anew by a
successor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from uuid import UUID

from headwater_broker.coordinator.group.classic.group import CONSUMER
from headwater_broker.coordinator.group.consumer.member import ConsumerMember, Named, Owned
from headwater_broker.coordinator.group.consumer.states import ConsumerGroupState
from headwater_broker.coordinator.group.consumer.subscriptions import ResolvedRegex, topics_of
from headwater_broker.coordinator.group.group_kind import GroupKind
from headwater_broker.coordinator.group.records import OffsetCommitValue, TopicPartition


@dataclass(slots=True)
class ConsumerGroup:
    """One group; members in the order in which they joined."""

    group_id: str
    epoch: int = 0
    metadata_hash: int = 0
    target_epoch: int = 0
    target_timestamp_ms: int = 0
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)
    """Member id by group.instance.id."""
    targets: dict[str, Named] = field(default_factory=dict)
    """Each member's part of the target assignment; members without a part may be left out."""
    regexes: dict[str, ResolvedRegex] = field(default_factory=dict)
    offsets: dict[TopicPartition, OffsetCommitValue] = field(default_factory=dict)
    holders: dict[UUID, dict[int, str]] = field(default_factory=dict)
    """By topic id: partition -> the member that holds it, also one that gives it up."""
    reconciled: int = 0
    """Members that have all of their part of the target."""
    needs_refresh: bool = field(default=True, compare=False)
    """The topics may have changed since the hash was computed."""
    empty_since_ms: int = field(default=-1, compare=False)
    """When it was first seen without members; its offsets expire after that."""
    job_epoch: int = field(default=-1, compare=False)
    """The epoch of the target that is being computed beside the loop; -1: none is."""
    is_resolving: bool = field(default=False, compare=False)
    """Patterns are resolved beside the loop."""
    regexes_due_ms: float = field(default=inf, compare=False)
    """When patterns are to be resolved anew, on the steady clock."""
    resolved_at_ms: float = field(default=-inf, compare=False)
    """When they were resolved last."""
    _topics: frozenset[str] | None = field(default=None, compare=False)

    protocol_type = CONSUMER
    kind = GroupKind.CONSUMER

    @property
    def state(self) -> ConsumerGroupState:
        """The state, from epochs and members."""
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.target_epoch:
            return ConsumerGroupState.ASSIGNING
        if self.reconciled < len(self.members):
            return ConsumerGroupState.RECONCILING
        return ConsumerGroupState.STABLE

    @property
    def is_empty(self) -> bool:
        """True without members."""
        return not self.members

    @property
    def topics(self) -> frozenset[str]:
        """The names of the topics that the members subscribe to."""
        if self._topics is None:
            rows = [topics_of(member, self.regexes) for member in self.members.values()]
            self._topics = frozenset().union(*rows)
        return self._topics

    def subscribed_topics(self) -> set[str] | None:
        """As `Group.subscribed_topics`."""
        return set(self.topics)

    def is_held(self, topic_id: UUID, partition: int) -> bool:
        """Whether any member holds the partition."""
        return partition in self.holders.get(topic_id, ())

    def target_of(self, member: ConsumerMember) -> Named:
        """The member's part of the target assignment. A static member that came back under a new id
        has the part of its former id."""
        return self.targets.get(member.member_id, {})

    def is_settled(self, member: ConsumerMember) -> bool:
        """True when nothing is about to change for the member."""
        return self.epoch == self.target_epoch and member.is_reconciled_to(self.target_epoch)

    def without(self, gone: Iterable[str]) -> dict[str, ConsumerMember]:
        """The members but for these."""
        out = set(gone)
        return {name: member for name, member in self.members.items() if name not in out}

    # -- replay

    def put_member(self, member: ConsumerMember) -> None:
        """The member is new, or has changed."""
        before = self.members.get(member.member_id)
        if before is not None:
            self._let_go(before)
            if before.instance_id is not None and before.instance_id != member.instance_id:
                self._forget_instance(before)
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        self._hold(member)
        if before is None or before.topics != member.topics or before.regex != member.regex:
            self._topics = None

    def remove_member(self, member_id: str) -> None:
        """The member has gone."""
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self._let_go(member)
        self._forget_instance(member)
        self._topics = None

    def _forget_instance(self, member: ConsumerMember) -> None:
        """Unless a newer member has the instance id."""
        instance = member.instance_id
        if instance is not None and self.static_members.get(instance) == member.member_id:
            del self.static_members[instance]

    def _hold(self, member: ConsumerMember) -> None:
        self.reconciled += member.is_reconciled_to(self.target_epoch)
        for owned in (member.assigned, member.revoking):
            for topic_id, partitions in owned.items():
                rows = self.holders.setdefault(topic_id, {})
                for partition in partitions:
                    rows[partition] = member.member_id

    def _let_go(self, member: ConsumerMember) -> None:
        self.reconciled -= member.is_reconciled_to(self.target_epoch)
        for owned in (member.assigned, member.revoking):
            self._release(owned, member.member_id)

    def _release(self, owned: Owned, member_id: str) -> None:
        for topic_id, partitions in owned.items():
            rows = self.holders.get(topic_id)
            if rows is None:
                continue
            for partition in partitions:
                if rows.get(partition) == member_id:
                    del rows[partition]
            if not rows:
                del self.holders[topic_id]

    def set_target_epoch(self, epoch: int, timestamp_ms: int) -> None:
        """There is a newer target assignment."""
        self.target_epoch, self.target_timestamp_ms = epoch, timestamp_ms
        self.reconciled = sum(m.is_reconciled_to(epoch) for m in self.members.values())

    def set_target(self, member_id: str, target: Mapping[UUID, frozenset[int]] | None) -> None:
        """A member's part of the target assignment."""
        if target is None:
            self.targets.pop(member_id, None)
        else:
            self.targets[member_id] = target

    def set_regex(self, regex: str, resolved: ResolvedRegex | None) -> None:
        """The topics that a pattern stands for."""
        if resolved is None:
            self.regexes.pop(regex, None)
        else:
            self.regexes[regex] = resolved
        self._topics = None
