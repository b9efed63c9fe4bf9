"""The target assignment of a consumer group (KIP-848): Kafka's TargetAssignmentBuilder. Pure.

A small one is computed at once. A large one is a job for a worker beside the broker's loop; what it
answers is put in place if the group has not got a newer one meanwhile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from headwater_broker.coordinator.common.shard import StoredRecord
from headwater_broker.coordinator.group.consumer.assignors.served import ASSIGNORS, DEFAULT_ASSIGNOR
from headwater_broker.coordinator.group.consumer.assignors.spec import (
    Assignor,
    AssignorMember,
    TopicShape,
)
from headwater_broker.coordinator.group.consumer.member import ConsumerMember, Named
from headwater_broker.coordinator.group.consumer.records import target_epoch_record, target_record
from headwater_broker.coordinator.group.consumer.subscriptions import (
    ResolvedRegex,
    Topics,
    topics_of,
)

LARGE = 20_000
"""Members and partitions, with each member's subscriptions: above this a job takes some ms."""


@dataclass(frozen=True, slots=True)
class TargetJob:
    """A target to compute. `run` may be called in another thread: nothing here changes."""

    group_id: str
    epoch: int
    """The group's epoch that it is for."""
    assignor: Assignor
    members: Mapping[str, AssignorMember]
    topics: Mapping[UUID, TopicShape]
    size: int

    @property
    def is_large(self) -> bool:
        """True for a job that would hold up the loop."""
        return self.size > LARGE

    def run(self) -> dict[str, Named]:
        """Each member's part."""
        found = self.assignor(self.members, self.topics)
        return {
            name: {topic: parts for topic, parts in found.get(name, {}).items() if parts}
            for name in self.members
        }


def target_job(
    group_id: str,
    epoch: int,
    members: Mapping[str, ConsumerMember],
    parts: Mapping[str, Named],
    regexes: Mapping[str, ResolvedRegex],
    topics: Topics,
) -> TargetJob:
    """`parts`: the members' parts of the target so far."""
    ids: dict[str, UUID] = {}
    shapes: dict[UUID, TopicShape] = {}
    has_racks = any(member.rack_id is not None for member in members.values())
    sets: dict[frozenset[str], frozenset[UUID]] = {}
    rows = {}
    size = len(members)
    for name, member in members.items():
        names = topics_of(member, regexes)
        found = sets.get(names)
        if found is None:
            found = sets[names] = _topic_ids(names, topics, ids, shapes, has_racks=has_racks)
        size += len(found)
        rows[name] = AssignorMember(
            topics=found,
            target=parts.get(name, {}),
            instance_id=member.instance_id,
            rack_id=member.rack_id,
        )
    size += sum(shape.partitions for shape in shapes.values())
    return TargetJob(group_id, epoch, assignor_of(members.values())[1], rows, shapes, size)


def _topic_ids(
    names: Iterable[str],
    topics: Topics,
    ids: dict[str, UUID],
    shapes: dict[UUID, TopicShape],
    *,
    has_racks: bool,
) -> frozenset[UUID]:
    found = []
    for name in names:
        topic_id = ids.get(name)
        if topic_id is None:
            known = topics.by_name(name)
            if known is None:
                continue
            topic_id = ids[name] = known.topic_id
            racks = topics.racks(topic_id) if has_racks else ()
            shapes[topic_id] = TopicShape(known.partitions, racks)
        found.append(topic_id)
    return frozenset(found)


def assignor_of(members: Iterable[ConsumerMember]) -> tuple[str, Assignor]:
    """The assignor that most members ask for; the default if none does."""
    votes = Counter(m.assignor for m in members if m.assignor in ASSIGNORS)
    name = max(sorted(votes, key=str), key=lambda n: votes[n]) if votes else None
    name = name or DEFAULT_ASSIGNOR
    return name, ASSIGNORS[name]


def target_records(
    group_id: str,
    members: Iterable[str],
    before: Mapping[str, Named],
    found: Mapping[str, Named],
    epoch: int,
    now_ms: int,
) -> list[StoredRecord]:
    """The parts that changed, then the epoch: a reader that sees the epoch has seen the parts."""
    out = []
    for name in members:
        part = found.get(name, {})
        if part != before.get(name, {}):
            out.append(target_record(group_id, name, part))
    out.append(target_epoch_record(group_id, epoch, now_ms))
    return out


def placed(
    job: TargetJob, found: Mapping[str, Named], members: Mapping[str, ConsumerMember]
) -> dict[str, Named]:
    """A late answer for the members of now: those that left are out; a static member that came back
    under a new id has the part of its former id."""
    by_instance = {
        row.instance_id: name for name, row in job.members.items() if row.instance_id is not None
    }
    parts = {}
    for name, member in members.items():
        former = by_instance.get(member.instance_id, "") if member.instance_id is not None else ""
        parts[name] = found.get(name) or found.get(former) or {}
    return parts


Submit = Callable[[TargetJob], None]
"""Has a job run beside the loop, and its answer brought back to the shard."""
