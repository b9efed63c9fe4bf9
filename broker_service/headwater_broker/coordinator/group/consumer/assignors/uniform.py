"""Kafka's `uniform` assignor: as many partitions for each member, and as few moves as that takes.

Partitions are numbered through, topic after topic in the order of their ids, so that the work goes
over lists of integers. Members are taken in the order of their ids: the answer depends on nothing
but what is asked.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from uuid import UUID

from headwater_broker.coordinator.group.consumer.assignors.mixed import balance_mixed
from headwater_broker.coordinator.group.consumer.assignors.spec import (
    AssignorMember,
    Partitions,
    TopicShape,
)

FREE = -1


def assign_uniform(
    members: Mapping[str, AssignorMember], topics: Mapping[UUID, TopicShape]
) -> dict[str, Partitions]:
    """Balance first, then what members have already, then racks.

    Where all members subscribe to the same topics, their numbers of partitions differ by at most
    one. Where they do not, no partition could go to a member with less (by two or more) than its
    own, not even by way of others.
    """
    if not members:
        return {}
    problem = _numbered(members, topics)
    if all(len(own) == len(members) for own in problem.subscribers):
        owners = _same_topics(problem)
    else:
        owners = balance_mixed(problem.owners, problem.subscribers, problem.counts, problem.racked)
    return _rows(problem, owners)


@dataclass(frozen=True, slots=True)
class _Numbered:
    """Members and partitions as integers."""

    member_ids: list[str]
    topic_ids: list[UUID]
    counts: list[int]
    """Partitions by topic."""
    subscribers: list[list[int]]
    """Members by topic, ascending."""
    owners: list[int]
    """By partition: the member that has it and may keep it, or FREE."""
    racked: list[frozenset[int]]
    """By partition: the members in a rack of its replicas. Empty: no racks are known."""


def _numbered(
    members: Mapping[str, AssignorMember], topics: Mapping[UUID, TopicShape]
) -> _Numbered:
    member_ids = sorted(members)
    wanted = frozenset().union(*(member.topics for member in members.values()))
    topic_ids = sorted(wanted & topics.keys())
    number_of = {topic: number for number, topic in enumerate(topic_ids)}
    counts = [topics[topic].partitions for topic in topic_ids]
    starts = list(accumulate(counts, initial=0))
    subscribers: list[list[int]] = [[] for _ in topic_ids]
    owners = [FREE] * starts[-1]
    for member, member_id in enumerate(member_ids):
        row = members[member_id]
        for topic in row.topics:
            if topic in number_of:
                subscribers[number_of[topic]].append(member)
        for topic, partitions in row.target.items():
            if topic not in row.topics or topic not in number_of:
                continue
            start, count = starts[number_of[topic]], counts[number_of[topic]]
            for partition in partitions:
                if partition < count and owners[start + partition] == FREE:
                    owners[start + partition] = member
    shapes = [topics[topic] for topic in topic_ids]
    racked = _racked([members[member_id].rack_id for member_id in member_ids], shapes)
    return _Numbered(member_ids, topic_ids, counts, subscribers, owners, racked)


def _racked(racks: list[str | None], shapes: Iterable[TopicShape]) -> list[frozenset[int]]:
    members_in: dict[str, set[int]] = {}
    for member, rack in enumerate(racks):
        if rack is not None:
            members_in.setdefault(rack, set()).add(member)
    if not members_in:
        return []
    near: dict[frozenset[str], frozenset[int]] = {}
    found: list[frozenset[int]] = []
    for shape in shapes:
        for partition in range(shape.partitions):
            replicas = shape.racks[partition] if shape.racks else frozenset()
            if replicas not in near:
                sets = (members_in.get(rack, set()) for rack in replicas)
                near[replicas] = frozenset().union(*sets)
            found.append(near[replicas])
    return found


def _same_topics(problem: _Numbered) -> list[int]:
    """Keep up to the quota, deal the rest: one partition for each member that lacks some, in turn.

    Dealt so, the partitions of one topic spread over members rather than fill one of them.
    """
    owners = problem.owners
    quota, extras = divmod(len(owners), len(problem.member_ids))
    held: list[list[int]] = [[] for _ in problem.member_ids]
    for partition, owner in enumerate(owners):
        if owner != FREE:
            held[owner].append(partition)
    kept_by_all = [FREE] * len(owners)
    lacking = [0] * len(held)
    without_extra: list[int] = []
    for member, partitions in enumerate(held):
        share = quota
        if len(partitions) > quota and extras > 0:
            extras -= 1
            share = quota + 1
        else:
            without_extra.append(member)
        for partition in _kept(partitions, share, member, problem.racked):
            kept_by_all[partition] = member
        lacking[member] = max(0, share - len(partitions))
    for member in without_extra[:extras]:
        lacking[member] += 1
    _deal(kept_by_all, lacking, problem.racked)
    return kept_by_all


def _kept(
    partitions: list[int], share: int, member: int, racked: list[frozenset[int]]
) -> list[int]:
    """The first `share` of a member's partitions, those near it before others."""
    if racked and len(partitions) > share:
        partitions = sorted(partitions, key=lambda p: (member not in racked[p], p))
    return partitions[:share]


def _deal(owners: list[int], lacking: list[int], racked: list[frozenset[int]]) -> None:
    """Give each free partition to a member that lacks some: near ones first, then in turn."""
    free = [partition for partition, owner in enumerate(owners) if owner == FREE]
    if racked:
        free = _dealt_near(free, owners, lacking, racked)
    turn = deque(member for member, lack in enumerate(lacking) if lack)
    for partition in free:
        member = turn.popleft()
        owners[partition] = member
        lacking[member] -= 1
        if lacking[member]:
            turn.append(member)


def _dealt_near(
    free: list[int], owners: list[int], lacking: list[int], racked: list[frozenset[int]]
) -> list[int]:
    """Deal what has a member near it; the partitions that are left."""
    turns: dict[frozenset[int], deque[int]] = {}
    left: list[int] = []
    for partition in free:
        near = racked[partition]
        turn = turns.setdefault(near, deque(sorted(near)))
        while turn and not lacking[turn[0]]:
            turn.popleft()
        if not turn:
            left.append(partition)
            continue
        member = turn.popleft()
        owners[partition] = member
        lacking[member] -= 1
        turn.append(member)
    return left


def _rows(problem: _Numbered, owners: list[int]) -> dict[str, Partitions]:
    rows: list[dict[UUID, frozenset[int]]] = [{} for _ in problem.member_ids]
    start = 0
    for topic, count in zip(problem.topic_ids, problem.counts, strict=True):
        shares: dict[int, list[int]] = {}
        for partition, owner in enumerate(owners[start : start + count]):
            shares.setdefault(owner, []).append(partition)
        for member, share in shares.items():
            if member != FREE:  # a topic that nobody subscribes to is not asked about
                rows[member][topic] = frozenset(share)
        start += count
    return dict(zip(problem.member_ids, rows, strict=True))
