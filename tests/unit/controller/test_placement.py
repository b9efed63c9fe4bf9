"""Replica placement: known assignments, and properties for any start."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import ErrorCode, KafkaError
from headwater.replica_placement import (
    alternate_racks,
    assign,
    assign_by_rack,
)
from headwater_broker.controller.events import CreatePartitions, PartitionGrowth
from unit.controller.machine_world import World


def test_ten_partitions_on_five_brokers() -> None:
    assert assign([0, 1, 2, 3, 4], 10, 3, start=0, shift=0) == {
        0: (0, 1, 2),
        1: (1, 2, 3),
        2: (2, 3, 4),
        3: (3, 4, 0),
        4: (4, 0, 1),
        5: (0, 2, 3),
        6: (1, 3, 4),
        7: (2, 4, 0),
        8: (3, 0, 1),
        9: (4, 1, 2),
    }


def test_three_partitions_on_three_brokers() -> None:
    placed = assign([0, 1, 2], 3, 2, start=1, shift=0)
    assert placed == {0: (1, 2), 1: (2, 0), 2: (0, 1)}


@pytest.mark.parametrize(
    ("partitions", "factor", "code", "text"),
    [
        (0, 1, ErrorCode.INVALID_PARTITIONS, "number of partitions must be larger than 0"),
        (1, 0, ErrorCode.INVALID_REPLICATION_FACTOR, "must be larger than 0"),
        (1, 4, ErrorCode.INVALID_REPLICATION_FACTOR, "4 larger than available brokers: 3"),
    ],
)
def test_bad_numbers(partitions: int, factor: int, code: ErrorCode, text: str) -> None:
    with pytest.raises(KafkaError, match=text) as refused:
        assign([1, 2, 3], partitions, factor, start=0, shift=0)
    assert refused.value.code is code


@settings(deadline=None)
@given(
    count=st.integers(1, 9),
    rounds=st.integers(1, 4),
    start=st.integers(0, 8),
    shift=st.integers(0, 8),
    data=st.data(),
)
def test_leaders_are_even_and_replicas_distinct(
    count: int, rounds: int, start: int, shift: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, count))
    brokers = list(range(10, 10 + count))
    placed = assign(brokers, rounds * count, factor, start=start, shift=shift)
    leaders = Counter(r[0] for r in placed.values())
    assert set(leaders.values()) == {rounds}
    assert all(len(set(r)) == factor for r in placed.values())


def test_racks_alternate() -> None:
    racks = {0: "a", 1: "c", 2: "c", 3: "b", 4: "b", 5: "a"}
    assert alternate_racks(racks) == [0, 3, 1, 5, 4, 2]


@settings(deadline=None)
@given(
    racks=st.dictionaries(st.integers(0, 20), st.sampled_from("abcd"), min_size=1, max_size=8),
    start=st.integers(0, 20),
    shift=st.integers(0, 20),
    data=st.data(),
)
def test_replicas_sit_in_as_many_racks_as_there_are(
    racks: dict[int, str], start: int, shift: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, len(racks)))
    placed = assign_by_rack(racks, 2 * len(racks), factor, start=start, shift=shift)
    for replicas in placed.values():
        assert len(set(replicas)) == factor
        used = {racks[b] for b in replicas}
        assert len(used) == min(factor, len(set(racks.values())))


def test_growth_goes_round_the_ids_in_order_however_the_brokers_came() -> None:
    world = World()
    for broker_id in (3, 1, 2):
        world.up(broker_id)
    world.create("t", (2,))
    world.ask(lambda token: CreatePartitions(token, (PartitionGrowth("t", 4, None),), False))
    assert [world.partition("t", i).replicas for i in range(4)] == [(2,), (3,), (1,), (2,)]
    world.close()
