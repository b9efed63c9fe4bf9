"""The assignor of share groups (Kafka's `SimpleAssignor`): a partition may have several members.

With at least as many partitions as members each partition has one member; with fewer each member
has one partition. Loads differ by one at most, and what was assigned before stays where it can.
Topics that the same members subscribe to are assigned together. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar
from uuid import UUID

Target = Mapping[UUID, frozenset[int]]
"""Topic id -> partitions."""
Place = tuple[UUID, int]

I = TypeVar("I")  # noqa: E741
H = TypeVar("H")


def assign(
    subscriptions: Mapping[str, frozenset[UUID]],
    partitions: Mapping[UUID, Iterable[int]],
    before: Mapping[str, Target],
) -> dict[str, Target]:
    """The target of each member. `subscriptions`: member -> topics; `partitions`: those that may be
    assigned; `before`: the present target."""
    subscribers: dict[UUID, list[str]] = {}
    for member in sorted(subscriptions):
        for topic in subscriptions[member]:
            subscribers.setdefault(topic, []).append(member)
    pools: dict[tuple[str, ...], list[Place]] = {}
    for topic in sorted(subscribers.keys() & partitions.keys()):
        pool = pools.setdefault(tuple(subscribers[topic]), [])
        pool += [(topic, index) for index in sorted(partitions[topic])]
    found: dict[str, dict[UUID, set[int]]] = {member: {} for member in subscriptions}
    for members, places in pools.items():
        for member, (topic, index) in _pairs(members, places, before):
            found[member].setdefault(topic, set()).add(index)
    return {
        member: {topic: frozenset(indexes) for topic, indexes in rows.items()}
        for member, rows in found.items()
    }


def _pairs(
    members: Sequence[str], places: Sequence[Place], before: Mapping[str, Target]
) -> Iterable[tuple[str, Place]]:
    known = set(places)
    had = {
        member: [
            (topic, index)
            for topic, indexes in sorted(before.get(member, {}).items())
            for index in sorted(indexes)
            if (topic, index) in known
        ]
        for member in members
    }
    if len(places) < len(members):
        return _spread(members, places, had).items()
    holders: dict[Place, list[str]] = {}
    for member, rows in had.items():
        for place in rows:
            holders.setdefault(place, []).append(member)
    return [(member, place) for place, member in _spread(places, members, holders).items()]


def _spread(
    items: Sequence[I], holders: Sequence[H], before: Mapping[I, Sequence[H]]
) -> dict[I, H]:
    """One holder for each item; loads differ by one at most."""
    if not holders:
        return {}
    least, extras = divmod(len(items), len(holders))
    load = dict.fromkeys(holders, 0)
    out: dict[I, H] = {}
    for item in items:
        for holder in before.get(item, ()):
            has = load[holder]
            if has < least or (has == least and extras):
                extras -= has == least
                load[holder] += 1
                out[item] = holder
                break
    rooms = [holder for holder in holders for _ in range(least - load[holder])]
    rooms += [holder for holder in holders if load[holder] <= least][:extras]
    left = [item for item in items if item not in out]
    out.update(zip(left, rooms, strict=True))
    return out
