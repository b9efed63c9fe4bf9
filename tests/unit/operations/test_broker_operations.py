"""The steps of drain, remove, scale and rolling restarts, and what a second call does after the
first was killed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headwater.client.values import TopicPartition
from headwater.errors import HeadwaterError, UsageError
from headwater.operations.replica_moves import Replicas, partitions_on
from unit.operations.fake_cluster import FakeCluster, InterruptedCommandError


def replicas(brokers: int, partitions: int, factor: int = 3) -> Replicas:
    return {
        TopicPartition("t", n): tuple((n + place) % brokers for place in range(factor))
        for n in range(partitions)
    }


@pytest.fixture
def five() -> FakeCluster:
    return FakeCluster(5, replicas(5, 10))


def moves(cluster: FakeCluster) -> list[str]:
    return [call for call in cluster.calls if call.startswith("move")]


def test_a_drain_moves_every_replica_once_and_stops_nothing(five: FakeCluster) -> None:
    before = partitions_on(five.replicas, [4])
    assert five.operations().drain([4]) == len(before)
    assert partitions_on(five.replicas, [4]) == [] and not five.moving
    # Metadata that still shows the former replicas starts no second move.
    assert sorted(moves(five)) == sorted(set(moves(five))) == [f"move t-{tp[1]}" for tp in before]
    assert set(five.calls) == set(moves(five))
    assert five.moves_seen_max == 4


def test_a_remove_drains_stops_and_forgets(five: FakeCluster) -> None:
    assert five.operations().remove([3, 4]) == ["broker-4", "broker-3"]
    order = [call for call in five.calls if not call.startswith("move")]
    assert order == ["stop-broker 4", "remove-broker 4", "stop-broker 3", "remove-broker 3"]
    assert five.calls.index("stop-broker 4") > max(five.calls.index(m) for m in moves(five))
    assert list(five.members) == [0, 1, 2] and not partitions_on(five.replicas, [3, 4])


@pytest.mark.parametrize(
    "at",
    [
        lambda call: call == "move t-4",
        lambda call: call == "stop-broker 4",
        lambda call: call == "remove-broker 4",
        lambda call: call == "stop-broker 3",
    ],
    ids=["mid-drain", "before the stop", "before the removal", "between two brokers"],
)
def test_a_killed_remove_continues_when_it_is_called_again(
    five: FakeCluster, at: Callable[[str], bool]
) -> None:
    five.interrupt_at = at
    with pytest.raises(InterruptedCommandError):
        five.operations().scale(3)
    five.interrupt_at = lambda _call: False
    five.operations().scale(3)
    assert list(five.members) == [0, 1, 2] and not partitions_on(five.replicas, [3, 4])
    assert sorted(moves(five)) == sorted(set(moves(five)))  # nothing moved twice
    assert five.calls.count("remove-broker 3") == 1


def test_the_moves_of_a_killed_drain_are_waited_for(five: FakeCluster) -> None:
    five.moving[TopicPartition("t", 4)] = (1, 0, 2)  # its drain was killed after the submission
    five.operations().drain([4])
    assert "move t-4" not in five.calls
    assert five.replicas[TopicPartition("t", 4)] == (1, 0, 2)


def test_a_topic_that_is_created_during_the_stop_brings_the_broker_back(five: FakeCluster) -> None:
    late = TopicPartition("late", 0)

    def create(_broker: int) -> None:
        five.on_stop = lambda _broker: None
        five.replicas[late] = (4,)

    five.on_stop = create
    five.operations().remove([4])
    order = [call for call in five.calls if "broker 4" in call or "late" in call]
    assert order == [
        "stop-broker 4",
        "start-broker 4",
        "move late-0",
        "stop-broker 4",
        "remove-broker 4",
    ]
    assert five.replicas[late] != (4,)


def test_no_removal_below_a_replication_factor(five: FakeCluster) -> None:
    with pytest.raises(UsageError, match=r"factor of t \(3\): add a broker first"):
        five.operations().scale(2)
    assert five.calls == [] and len(five.members) == 5
    with pytest.raises(UsageError, match="needs a broker"):
        five.operations().remove([0, 1, 2, 3, 4])
    with pytest.raises(UsageError, match="no broker 7: the brokers are 0, 1, 2, 3, 4"):
        five.operations().remove([7])
    assert five.calls == []


def test_a_drain_that_does_not_move_names_what_is_left(five: FakeCluster) -> None:
    five.is_stuck = True
    with pytest.raises(HeadwaterError, match=r"no replicas on broker 4: 6 partitions .*t-2, t-3"):
        five.operations().drain([4])
    five.is_stuck = False
    assert five.operations().drain([4]) > 0


def test_scaling_up_adds_brokers_and_moves_replicas_to_them() -> None:
    cluster = FakeCluster(3, replicas(3, 10))
    cluster.operations().scale(5)
    assert list(cluster.members) == [0, 1, 2, 3, 4]
    counts = [len(partitions_on(cluster.replicas, [i])) for i in range(5)]
    assert max(counts) - min(counts) <= 1
    done = list(cluster.calls)
    cluster.operations().scale(5)
    assert cluster.calls == done  # nothing is left to do


def test_scaling_up_without_a_rebalance_moves_nothing() -> None:
    cluster = FakeCluster(3, replicas(3, 10))
    cluster.operations().scale(4, rebalance=False)
    assert cluster.calls == ["add-brokers"]


def test_a_rolling_restart_waits_for_each_broker_and_ends_with_the_controller(
    five: FakeCluster,
) -> None:
    five.controller = 1
    assert five.operations().rolling_restart() == [0, 2, 3, 4, 1]
    # The fake refuses a restart while another broker lags.
    assert five.calls == [f"restart-broker {i}" for i in (0, 2, 3, 4, 1)]
    assert not five.lagging


def test_no_rolling_restart_begins_while_a_replica_lags(five: FakeCluster) -> None:
    five.lagging[2] = 1_000
    with pytest.raises(HeadwaterError, match=r"before the first restart: 6 not in sync \(t-0"):
        five.operations().rolling_restart()
    five.lagging.clear()
    five.down.add(3)
    with pytest.raises(HeadwaterError, match="broker 3 does not run"):
        five.operations().rolling_restart()
    assert five.calls == []


def test_a_rolling_restart_ends_at_a_broker_that_does_not_catch_up(five: FakeCluster) -> None:
    five.catch_up_polls = 10_000
    with pytest.raises(HeadwaterError, match="after the restart of broker 1"):
        five.operations().rolling_restart()
    assert five.calls == ["restart-broker 1"]


def test_a_killed_upgrade_leaves_the_upgraded_brokers_alone(five: FakeCluster) -> None:
    five.interrupt_at = lambda call: call == "restart-broker 3"
    with pytest.raises(InterruptedCommandError):
        five.operations().rolling_restart("/new/python")
    five.interrupt_at = lambda _call: False
    five.calls.clear()
    assert five.operations().rolling_restart("/new/python") == [3, 4, 0]
    assert set(five.members.values()) == {"/new/python"}


def test_a_restart_waits_until_the_broker_is_in_sync(five: FakeCluster) -> None:
    assert five.operations().restart(2) == "h:2"
    assert not five.lagging
