"""The assignors of the classic group protocol: range, roundrobin, sticky, cooperative-sticky. Pure.

The group's leader computes the assignment. Members and partitions are sorted first, so that the
result does not depend on their order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from headwater.client.values import TopicPartition
from headwater.errors import UsageError


class Subscription(NamedTuple):
    """What a member sent when it joined. `owned` is of `generation` (-1: not known)."""

    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1
    group_instance_id: str | None = None


Members = Mapping[str, Subscription]
Counts = Mapping[str, int]
"""Topic -> number of partitions, of the topics that exist."""
Assignment = dict[str, list[TopicPartition]]


def _in_order(members: Members) -> list[str]:
    """Static members first, by instance id, so that a restart does not change their place
    (KIP-345)."""
    return sorted(
        members, key=lambda m: (members[m].group_instance_id is None,
                                members[m].group_instance_id or m)
    )  # fmt: skip


def assign_range(members: Members, counts: Counts) -> Assignment:
    """Of each topic contiguous partitions; if they do not divide evenly, the first members have one
    more."""
    out: Assignment = {m: [] for m in members}
    ordered = _in_order(members)
    for topic in sorted(counts):
        subscribers = [m for m in ordered if topic in members[m].topics]
        if not subscribers:
            continue
        base, extra = divmod(counts[topic], len(subscribers))
        at = 0
        for index, member in enumerate(subscribers):
            size = base + (1 if index < extra else 0)
            out[member] += [TopicPartition(topic, p) for p in range(at, at + size)]
            at += size
    return out


def assign_roundrobin(members: Members, counts: Counts) -> Assignment:
    """The partitions of all topics to the members in turn, without those that do not subscribe."""
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
    """Partition -> its owner by the newest generation. If two members of one generation claim a
    partition, it has no owner (KIP-792)."""
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
    """As balanced as the subscriptions allow, with the fewest partitions that change owners."""
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
    subscribers = {t: [m for m in held if t in members[m].topics] for t in counts}
    # Partitions with the fewest subscribers first: the others can still be balanced.
    for tp in sorted(free, key=lambda tp: (len(subscribers[tp.topic]), tp)):
        if subscribers[tp.topic]:
            held[min(subscribers[tp.topic], key=lambda m: len(held[m]))].append(tp)
    while _move_one(held, subscribers):
        pass
    return {m: sorted(rows) for m, rows in held.items()}


def _move_one(held: dict[str, list[TopicPartition]], subscribers: Mapping[str, list[str]]) -> bool:
    """Move one partition to a member that has at least two fewer; False if there is none."""
    for member in sorted(held, key=lambda m: -len(held[m])):
        for tp in reversed(held[member]):
            least = min(subscribers[tp.topic], key=lambda m: len(held[m]))
            if len(held[least]) + 1 < len(held[member]):
                held[member].remove(tp)
                held[least].append(tp)
                return True
    return False


def assign_cooperative(members: Members, counts: Counts) -> Assignment:
    """Sticky, without the partitions that another member has not revoked yet (KIP-429)."""
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
    """An assignor and its name in the protocol. All members of a group need one in common.

    `assign(members, counts)`: member id -> Subscription, topic -> number of partitions; it gives
    member id -> partitions, for each member. The group's leader calls it, whichever member that is:
    it must not depend on the process. With `is_cooperative` members keep their partitions while
    they join, and it must not give away what another one owns (KIP-429).
    """

    name: str
    assign: Callable[[Members, Counts], Assignment]
    is_cooperative: bool = False


ASSIGNORS = {
    a.name: a
    for a in (
        Assignor("range", assign_range, False),
        Assignor("roundrobin", assign_roundrobin, False),
        Assignor("sticky", assign_sticky, False),
        Assignor("cooperative-sticky", assign_cooperative, True),
    )
}


def assignors_named(choices: tuple[str | Assignor, ...]) -> tuple[Assignor, ...]:
    """The assignors of these names, and those that are given, in order of preference.

    Raises UsageError.
    """
    unknown = [str(c) for c in choices if not isinstance(c, Assignor) and c not in ASSIGNORS]
    if unknown or not choices:
        raise UsageError(
            f"partition_assignment_strategy {', '.join(unknown) or 'is empty'}: "
            f"one or more of {', '.join(ASSIGNORS)}, or an Assignor of your own"
        )
    return tuple(c if isinstance(c, Assignor) else ASSIGNORS[c] for c in choices)
