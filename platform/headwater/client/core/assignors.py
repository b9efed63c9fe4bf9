"""Client-side assignors of the consumer protocol: range, roundrobin, cooperative-sticky. Pure.

Every member could compute the same result from the same view; the group's leader does. Members and
partitions are sorted first, so the outcome depends on nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from headwater.client.values import TopicPartition
from headwater.errors import UsageError


class Subscription(NamedTuple):
    """What a member told when it joined. `generation` dates `owned` (-1: unknown)."""

    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1
    group_instance_id: str | None = None


Members = Mapping[str, Subscription]
Counts = Mapping[str, int]
"""Topic -> number of partitions; topics that do not exist are absent."""
Assignment = dict[str, list[TopicPartition]]


def _in_order(members: Members) -> list[str]:
    """Static members by instance id first, so that a restart keeps their place (KIP-345)."""
    return sorted(
        members, key=lambda m: (members[m].group_instance_id is None,
                                members[m].group_instance_id or m)
    )  # fmt: skip


def assign_range(members: Members, counts: Counts) -> Assignment:
    """Per topic: contiguous partitions; the first members take one more when it is uneven."""
    out: Assignment = {m: [] for m in members}
    ordered = _in_order(members)
    for topic in sorted(counts):
        takers = [m for m in ordered if topic in members[m].topics]
        if not takers:
            continue
        base, extra = divmod(counts[topic], len(takers))
        at = 0
        for index, member in enumerate(takers):
            size = base + (1 if index < extra else 0)
            out[member] += [TopicPartition(topic, p) for p in range(at, at + size)]
            at += size
    return out


def assign_roundrobin(members: Members, counts: Counts) -> Assignment:
    """All partitions of all topics dealt in turn, members that do not subscribe skipped."""
    out: Assignment = {m: [] for m in members}
    ordered = _in_order(members)
    turn = 0
    for topic in sorted(counts):
        if not any(topic in members[m].topics for m in ordered):
            continue
        for partition in range(counts[topic]):
            while topic not in members[ordered[turn % len(ordered)]].topics:
                turn += 1
            out[ordered[turn % len(ordered)]].append(TopicPartition(topic, partition))
            turn += 1
    return out


def _current_owners(members: Members, counts: Counts) -> dict[TopicPartition, str]:
    """Who holds what, by the newest generation; a claim that two share is nobody's (KIP-792)."""
    newest: dict[TopicPartition, int] = {}
    owners: dict[TopicPartition, str] = {}
    disputed: set[TopicPartition] = set()
    for member in _in_order(members):
        subscription = members[member]
        for tp in subscription.owned:
            exists = tp.partition < counts.get(tp.topic, 0)
            if not exists or tp.topic not in subscription.topics:
                continue
            known = newest.get(tp)
            if known is None or subscription.generation > known:
                newest[tp], owners[tp] = subscription.generation, member
                disputed.discard(tp)
            elif subscription.generation == known:
                disputed.add(tp)
    return {tp: m for tp, m in owners.items() if tp not in disputed}


def assign_sticky(members: Members, counts: Counts) -> Assignment:
    """As balanced as subscriptions allow, with the fewest moves away from the present owners."""
    held: dict[str, list[TopicPartition]] = {m: [] for m in _in_order(members)}
    owners = _current_owners(members, counts)
    for tp in sorted(owners):
        held[owners[tp]].append(tp)
    free = [
        TopicPartition(topic, p)
        for topic in sorted(counts)
        for p in range(counts[topic])
        if TopicPartition(topic, p) not in owners
    ]
    takers = {t: [m for m in held if t in members[m].topics] for t in counts}
    # Partitions with the fewest possible takers first: the others can still even things out.
    for tp in sorted(free, key=lambda tp: (len(takers[tp.topic]), tp)):
        if takers[tp.topic]:
            held[min(takers[tp.topic], key=lambda m: len(held[m]))].append(tp)
    while _move_one(held, takers):
        pass
    return {m: sorted(rows) for m, rows in held.items()}


def _move_one(held: dict[str, list[TopicPartition]], takers: Mapping[str, list[str]]) -> bool:
    """Move one partition from a fuller member to one with at least two fewer, if there is any."""
    for member in sorted(held, key=lambda m: -len(held[m])):
        for tp in reversed(held[member]):
            least = min(takers[tp.topic], key=lambda m: len(held[m]))
            if len(held[least]) + 1 < len(held[member]):
                held[member].remove(tp)
                held[least].append(tp)
                return True
    return False


def assign_cooperative(members: Members, counts: Counts) -> Assignment:
    """Sticky, but a partition that another member still owns waits for its release (KIP-429)."""
    target = assign_sticky(members, counts)
    owned_by: dict[TopicPartition, set[str]] = {}
    for member, subscription in members.items():
        for tp in subscription.owned:
            owned_by.setdefault(tp, set()).add(member)
    return {
        member: [tp for tp in rows if owned_by.get(tp, set()) <= {member}]
        for member, rows in target.items()
    }


class Assignor(NamedTuple):
    """A strategy by the name it has in the protocol."""

    name: str
    assign: Callable[[Members, Counts], Assignment]
    is_cooperative: bool


ASSIGNORS = {
    a.name: a
    for a in (
        Assignor("range", assign_range, False),
        Assignor("roundrobin", assign_roundrobin, False),
        Assignor("cooperative-sticky", assign_cooperative, True),
    )
}


def assignors_named(names: tuple[str, ...]) -> tuple[Assignor, ...]:
    """By name, in order of preference. Raises UsageError."""
    unknown = [n for n in names if n not in ASSIGNORS]
    if unknown or not names:
        raise UsageError(
            f"partition_assignment_strategy {', '.join(unknown) or 'is empty'}: "
            f"one or more of {', '.join(ASSIGNORS)}"
        )
    return tuple(ASSIGNORS[n] for n in names)
