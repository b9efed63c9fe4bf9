"""The assignor of share groups: everything is held, loads are even, what was held stays."""

from __future__ import annotations

from random import Random
from uuid import UUID

import pytest

from headwater_broker.coordinator.group.share.assignor import Target, assign

A, B = UUID(int=1), UUID(int=2)


def loads(found: dict[str, Target]) -> dict[str, int]:
    return {member: sum(map(len, target.values())) for member, target in found.items()}


def held(found: dict[str, Target]) -> list[tuple[UUID, int]]:
    return [(t, i) for target in found.values() for t, indexes in target.items() for i in indexes]


def test_each_partition_has_one_member_while_they_suffice() -> None:
    found = assign({"x": frozenset({A}), "y": frozenset({A})}, {A: range(5)}, {})
    assert sorted(held(found)) == [(A, i) for i in range(5)]
    assert sorted(loads(found).values()) == [2, 3]


def test_more_members_than_partitions_share_them() -> None:
    found = assign({f"m{n}": frozenset({A}) for n in range(5)}, {A: range(2)}, {})
    assert set(loads(found).values()) == {1}
    counts = [held(found).count((A, i)) for i in range(2)]
    assert sorted(counts) == [2, 3]


def test_what_has_no_state_is_not_assigned() -> None:
    found = assign({"x": frozenset({A, B})}, {B: (1,)}, {})
    assert found == {"x": {B: frozenset({1})}}
    assert assign({"x": frozenset({A})}, {}, {}) == {"x": {}}
    assert assign({}, {A: range(3)}, {}) == {}


def test_topics_of_different_subscribers_are_spread_by_themselves() -> None:
    subscriptions = {"x": frozenset({A}), "y": frozenset({A, B}), "z": frozenset({A, B})}
    found = assign(subscriptions, {A: range(6), B: range(2)}, {})
    assert all(len(found[m][A]) == 2 for m in subscriptions)
    assert [len(found[m].get(B, ())) for m in subscriptions] == [0, 1, 1]


@pytest.mark.parametrize("seed", range(40))
def test_members_come_and_go(seed: int) -> None:
    random = Random(seed)
    before: dict[str, Target] = {}
    members = {f"m{n}" for n in range(random.randrange(1, 9))}
    partitions = random.randrange(1, 9)
    for _ in range(6):
        members = {m for m in members if random.random() < 0.8} or {"m0"}
        members |= {f"m{random.randrange(20)}" for _ in range(random.randrange(3))}
        partitions += random.randrange(3)
        subscriptions = {m: frozenset({A}) for m in members}
        found = assign(subscriptions, {A: range(partitions)}, before)
        assert found.keys() == members
        assert {i for _, i in held(found)} == set(range(partitions))
        if partitions >= len(members):
            assert len(held(found)) == partitions
            assert max(loads(found).values()) - min(loads(found).values()) <= 1
        else:
            assert set(loads(found).values()) == {1}
            counts = [held(found).count((A, i)) for i in range(partitions)]
            assert max(counts) - min(counts) <= 1
        assert assign(subscriptions, {A: range(partitions)}, found) == found
        before = found
