"""Which replicas move where when brokers are drained or added."""

from __future__ import annotations

from collections import Counter

import pytest

from headwater.client.values import Broker, TopicPartition
from headwater.errors import UsageError
from headwater.operations.replica_moves import Replicas, drain_moves, rebalance_moves


def brokers(*ids: int, racks: dict[int, str] | None = None) -> list[Broker]:
    return [Broker(i, "h", 9092 + i, (racks or {}).get(i)) for i in ids]


def topic(*rows: tuple[int, ...], name: str = "t") -> Replicas:
    return {TopicPartition(name, n): ids for n, ids in enumerate(rows)}


def load(replicas: Replicas) -> Counter[int]:
    return Counter(i for ids in replicas.values() for i in ids)


def test_a_drained_replica_keeps_its_place_and_goes_to_the_emptiest_broker() -> None:
    replicas = topic((0, 1), (1, 2), (2, 0), (0, 2))
    moves = drain_moves(replicas, brokers(0, 1, 2, 3), {0})
    assert moves.keys() == {tp for tp, ids in replicas.items() if 0 in ids}
    for tp, ids in moves.items():
        for before, after in zip(replicas[tp], ids, strict=True):
            assert before == after or before == 0
        assert len(set(ids)) == len(ids)
    after = load(replicas | moves)
    assert (
        after[0] == 0 and max(after[i] for i in (1, 2, 3)) - min(after[i] for i in (1, 2, 3)) <= 1
    )


def test_a_rack_without_a_replica_is_preferred_to_an_emptier_broker() -> None:
    racks = {0: "a", 1: "b", 2: "b", 3: "c"}
    replicas = topic((0, 1), (3, 1), (3, 0), (3, 1), (3, 0))
    moves = drain_moves(
        {TopicPartition("u", 0): (0, 1), **replicas}, brokers(1, 2, 3, racks=racks), {0}
    )
    assert moves[TopicPartition("u", 0)] == (3, 1)


def test_several_brokers_are_drained_together() -> None:
    replicas = topic((3, 4, 0), (4, 1, 3))
    moves = drain_moves(replicas, brokers(0, 1, 2, 3, 4), {3, 4})
    assert {tuple(sorted(ids)) for ids in moves.values()} == {(0, 1, 2)}


def test_no_drain_below_a_replication_factor() -> None:
    replicas = topic((0, 1, 2)) | topic((0,), name="single")
    with pytest.raises(UsageError, match=r"2 running brokers .* t \(3\): add a broker"):
        drain_moves(replicas, brokers(0, 1, 2), {2})


def test_a_broker_that_is_down_counts_as_left_but_gets_nothing() -> None:
    replicas = topic((0, 1, 2))
    assert drain_moves(replicas, brokers(0, 2, 3), {2}) == topic((0, 1, 3))
    with pytest.raises(UsageError, match="factor of t"):
        drain_moves(replicas, brokers(0, 2), {2})


def test_a_drained_broker_has_no_moves() -> None:
    assert drain_moves(topic((0, 1), (1, 0)), brokers(0, 1, 2), {2}) == {}


def test_added_brokers_get_replicas_and_leaders() -> None:
    replicas = topic(*((n % 3, (n + 1) % 3, (n + 2) % 3) for n in range(10)))
    moves = rebalance_moves(replicas, brokers(0, 1, 2, 3, 4))
    now = replicas | moves
    counts = load(now)
    assert max(counts.values()) - min(counts[i] for i in range(5)) <= 1
    leaders = Counter(ids[0] for ids in now.values())
    assert leaders[3] > 0 and leaders[4] > 0
    assert all(len(set(ids)) == 3 for ids in now.values())
    moved = sum(a != b for tp, ids in moves.items() for a, b in zip(ids, replicas[tp], strict=True))
    assert moved == counts[3] + counts[4]  # no move but those to the new brokers


def test_even_loads_stay() -> None:
    assert rebalance_moves(topic((0, 1), (1, 2), (2, 0)), brokers(0, 1, 2)) == {}


def test_a_rebalance_keeps_replicas_in_different_racks() -> None:
    racks = {0: "a", 1: "b", 2: "b"}
    replicas = topic(*[(0, 1)] * 4)
    now = replicas | rebalance_moves(replicas, brokers(0, 1, 2, racks=racks))
    assert all(0 in ids for ids in now.values())
    assert load(now) == {0: 4, 1: 2, 2: 2}


def test_partitions_on_a_broker_that_is_down_stay() -> None:
    replicas = topic((0, 9), (0, 9), (0, 9))
    assert rebalance_moves(replicas, brokers(0, 1)) == {}
