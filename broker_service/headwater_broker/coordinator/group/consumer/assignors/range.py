"""Kafka's `range` assignor: each topic by itself, in ranges, keeping what members have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

from headwater_broker.coordinator.group.consumer.assignors.spec import (
    AssignorMember,
    Partitions,
    TopicShape,
)


def assign_range(
    members: Mapping[str, AssignorMember], topics: Mapping[UUID, TopicShape]
) -> dict[str, Partitions]:
    """Each topic evenly over its subscribers; what moves fills them in ascending ranges.

    Topics with as many partitions, the same subscribers and the same past are divided alike, so
    that partition 7 of each goes to one member and may be joined there. A member that has several
    partitions of a topic keeps the lowest; keeping comes before contiguous ranges.

    Which racks replicas are in changes nothing: whom a partition goes to is a matter of order, and
    ranges that differed by topic could not be joined.
    """
    rows: dict[str, dict[UUID, frozenset[int]]] = {member_id: {} for member_id in members}
    for topic in sorted(topics):
        subscribers = sorted(m for m, member in members.items() if topic in member.topics)
        if not subscribers:
            continue
        held = {m: members[m].target.get(topic, frozenset()) for m in subscribers}
        shares = _divide(topics[topic].partitions, subscribers, held)
        for member_id, share in shares.items():
            if share:
                rows[member_id][topic] = frozenset(share)
    return dict(rows)


def _divide(
    count: int, subscribers: list[str], held: Mapping[str, Iterable[int]]
) -> dict[str, list[int]]:
    """The partitions 0 to `count` of one topic, by subscriber."""
    quota, extras = divmod(count, len(subscribers))
    shares: dict[str, list[int]] = {}
    free = set(range(count))
    without_extra: list[str] = []
    for member_id in subscribers:
        kept = sorted(free.intersection(held[member_id]))
        if len(kept) > quota and extras > 0:
            extras -= 1
            shares[member_id] = kept[: quota + 1]
        else:
            shares[member_id] = kept[:quota]
            without_extra.append(member_id)
        free.difference_update(shares[member_id])
    rest = iter(sorted(free))
    for place, member_id in enumerate(without_extra):
        share = shares[member_id]
        wanted = quota + (place < extras)
        share.extend(next(rest) for _ in range(wanted - len(share)))
    return shares
