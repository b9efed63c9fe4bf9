"""The change of a consumer group by one decision: records, and the group after them. Pure.

A decision must not change the group itself: only the replay of its records does. Later steps of the
decision see what earlier ones decided through this.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from headwater_broker.coordinator.common.shard import Decision
from headwater_broker.coordinator.group.consumer.group import ConsumerGroup
from headwater_broker.coordinator.group.consumer.member import ConsumerMember, Named
from headwater_broker.coordinator.group.consumer.records import (
    group_record,
    member_record,
    member_tombstones,
    position_record,
    regex_record,
    target_record,
)
from headwater_broker.coordinator.group.consumer.subscriptions import (
    ResolvedRegex,
    Topics,
    metadata_hash,
    topics_of,
)
from headwater_broker.coordinator.group.consumer.target import target_records


class Change:
    """One decision's change of a group."""

    def __init__(self, group: ConsumerGroup, out: Decision) -> None:
        self.group = group
        self.out = out
        self.members: dict[str, ConsumerMember] = dict(group.members)
        self.targets: dict[str, Named] = {}
        """The parts of the target that differ from the group's."""
        self.regexes: Mapping[str, ResolvedRegex] = group.regexes
        self.epoch = group.epoch
        self.target_epoch = group.target_epoch

    # -- members

    def put(self, member: ConsumerMember) -> None:
        """Write the records of the member that differ."""
        before = self.members.get(member.member_id)
        if before is member:
            return
        self.members[member.member_id] = member
        group_id = self.group.group_id
        if before is None or not before.has_metadata_of(member):
            self.out.records.append(member_record(group_id, member))
        if not (before or ConsumerMember(member_id=member.member_id)).has_position_of(member):
            self.out.records.append(position_record(group_id, member))

    def remove(self, member_id: str) -> None:
        """Tombstones of the member; and of its pattern, if nobody else has that."""
        member = self.members.pop(member_id)
        self.out.records += member_tombstones(self.group.group_id, member_id)
        self.drop_unused_regex(member.regex)

    def replace_static(self, old: ConsumerMember, member_id: str) -> ConsumerMember:
        """The static member came back under a new id: it has the place of the old one, and as
        epoch 0 until it is reconciled."""
        group_id = self.group.group_id
        del self.members[old.member_id]
        self.out.records += member_tombstones(group_id, old.member_id)
        new = replace(old, member_id=member_id, epoch=0, previous_epoch=0)
        part = self.group.targets.get(old.member_id)
        self.members[member_id] = new
        self.out.records.append(member_record(group_id, new))
        if part is not None:
            self.targets[member_id] = part
            self.out.records.append(target_record(group_id, member_id, part))
        self.out.records.append(position_record(group_id, new))
        return new

    def target_of(self, member: ConsumerMember) -> Named:
        """The member's part of the target as it will be."""
        part = self.targets.get(member.member_id)
        return self.group.targets.get(member.member_id, {}) if part is None else part

    # -- patterns

    def drop_unused_regex(self, regex: str | None) -> None:
        """Forget what a pattern stands for once no member has it."""
        if regex is None or regex not in self.regexes:
            return
        if any(member.regex == regex for member in self.members.values()):
            return
        self.regexes = {name: row for name, row in self.regexes.items() if name != regex}
        self.out.records.append(regex_record(self.group.group_id, regex, None))

    def put_regexes(self, found: Mapping[str, ResolvedRegex]) -> None:
        """Write what patterns stand for."""
        self.regexes = {**self.regexes, **found}
        for regex, resolved in found.items():
            self.out.records.append(regex_record(self.group.group_id, regex, resolved))

    # -- epochs

    def subscribed(self) -> frozenset[str]:
        """The topics that the members subscribe to."""
        rows = {topics_of(member, self.regexes) for member in self.members.values()}
        return frozenset().union(*rows)

    def bump(self, topics: Topics) -> None:
        """Members, subscriptions or topics changed: the next epoch."""
        self.epoch = self.group.epoch + 1
        names = metadata_hash(self.subscribed(), topics)
        self.out.records.append(group_record(self.group.group_id, self.epoch, names))

    def set_target(self, epoch: int, found: Mapping[str, Named], now_ms: int) -> None:
        """Write the target assignment of an epoch."""
        self.out.records += target_records(
            self.group.group_id,
            self.members,
            {name: self.target_of(member) for name, member in self.members.items()},
            found,
            epoch,
            now_ms,
        )
        self.targets = {name: found.get(name, {}) for name in self.members}
        self.target_epoch = epoch

    @property
    def is_settled(self) -> bool:
        """True when every member has all of its part of a target of the group's epoch."""
        if self.epoch != self.target_epoch:
            return False
        return all(m.is_reconciled_to(self.target_epoch) for m in self.members.values())
