"""A broker that is back gets its leaderships as soon as it is in sync, not at the next check."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from headwater_broker.controller.decisions.leader_balance import STEADY_TICKS
from headwater_broker.controller.events import DeleteTopics, Reassign, Tick
from headwater_broker.metadata.znodes import NO_DIRECTORY
from unit.controller.machine_world import World


@pytest.fixture
def world() -> Iterator[World]:
    """Brokers 1, 2 and 3; topic t prefers each of them once, topic u prefers 1 twice."""
    made = World()
    for broker_id in (1, 2, 3):
        made.up(broker_id)
    made.create("t", (1, 2, 3), (2, 3, 1), (3, 1, 2))
    made.create("u", (1, 2, 3), (1, 3, 2))
    yield made
    made.close()


def leaders(world: World) -> dict[str, list[int]]:
    topics = world.machine.state.topics.values()
    return {t.name: [p.leader for p in t.partitions.values()] for t in topics}


def restart(world: World, *broker_ids: int) -> None:
    for broker_id in broker_ids:
        world.down(broker_id)
    for broker_id in broker_ids:
        world.up(broker_id)


def rejoin(world: World, *names: str) -> None:
    for name in names:
        for partition in world.machine.state.topics[name].partitions.values():
            assert world.alter_isr(partition, (1, 2, 3)) == 0


def pass_ticks(world: World, count: int = STEADY_TICKS) -> None:
    for _ in range(count):
        world.handle(Tick())


HOME = {"t": [1, 2, 3], "u": [1, 1]}
AWAY = {"t": [2, 2, 3], "u": [2, 3]}


def test_leaders_come_home_once_the_broker_is_in_sync_with_all_it_prefers(world: World) -> None:
    restart(world, 1)
    pass_ticks(world)
    assert leaders(world) == AWAY
    rejoin(world, "u")
    pass_ticks(world)
    assert leaders(world) == AWAY, "t-0 is not in sync"
    rejoin(world, "t")
    assert leaders(world) == AWAY, "at the next tick"
    pass_ticks(world, 1)
    assert leaders(world) == HOME


def test_a_broker_leads_only_when_it_has_been_back_for_a_while(world: World) -> None:
    """It may crash again at once, and would take its partitions along each time."""
    restart(world, 1)
    rejoin(world, "t", "u")
    pass_ticks(world, STEADY_TICKS - 1)
    assert leaders(world) == AWAY
    restart(world, 1)
    rejoin(world, "t", "u")
    pass_ticks(world, STEADY_TICKS - 1)
    assert leaders(world) == AWAY, "counted anew"
    pass_ticks(world, 1)
    assert leaders(world) == HOME


def test_a_cluster_that_was_stopped_is_balanced_in_seconds(world: World) -> None:
    """All of its brokers were down: the first one back leads all."""
    for broker_id in (1, 2, 3):
        world.down(broker_id)
    for broker_id in (2, 1):
        world.up(broker_id)
        pass_ticks(world)
    assert leaders(world) == {"t": [-1, -1, -1], "u": [-1, -1]}, "only 3 has all records"
    world.up(3)
    assert leaders(world) == {"t": [3, 3, 3], "u": [3, 3]}
    rejoin(world, "t", "u")
    pass_ticks(world)
    assert leaders(world) == HOME


def test_a_new_controller_waits_on_for_those_who_catch_up(world: World) -> None:
    restart(world, 1)
    world.fail_over()
    rejoin(world, "t", "u")
    pass_ticks(world)
    assert leaders(world) == HOME


def test_a_new_controller_leaves_those_in_sync_to_the_check(world: World) -> None:
    restart(world, 1)
    rejoin(world, "t", "u")
    world.fail_over()
    pass_ticks(world)
    assert leaders(world) == AWAY


def test_what_cannot_be_waited_for_keeps_no_leader_away(world: World) -> None:
    """A deleted topic, a partition that prefers another broker by now, or an offline one. In the
    last case the broker leads as soon as it has caught up."""
    world.create("gone", (1, 2, 3))
    world.create("moved", (1, 2, 3))
    world.create("alone", (1, 2))
    restart(world, 1)
    rejoin(world, "t", "u")
    pass_ticks(world)
    assert leaders(world)["t"] == AWAY["t"]
    world.ask(lambda token: DeleteTopics(token, (("gone", NO_DIRECTORY),)))
    world.ask(lambda token: Reassign(token, {("moved", 0): (2, 3)}))
    world.down(2)
    pass_ticks(world)
    assert (leaders(world)["u"], leaders(world)["alone"]) == ([1, 1], [-1])
    world.up(2)
    pass_ticks(world)
    assert leaders(world)["alone"] == [2]
    world.alter_isr(world.partition("alone"), (1, 2))
    pass_ticks(world)
    assert leaders(world)["alone"] == [1]


def test_a_broker_that_dies_again_is_waited_for_again(world: World) -> None:
    restart(world, 1)
    world.down(1)
    pass_ticks(world)
    assert leaders(world) == AWAY
    world.up(1)
    rejoin(world, "t", "u")
    pass_ticks(world)
    assert leaders(world) == HOME


@pytest.mark.parametrize("change", [{"auto_leader_rebalance_enable": False},
                                    {"leader_imbalance_per_broker_percentage": 100}])  # fmt: skip
def test_the_settings_of_the_balance_count_here_too(world: World, change: dict[str, int]) -> None:
    world.machine.state.config = replace(world.machine.state.config, **change)  # type: ignore[arg-type]
    restart(world, 1)
    rejoin(world, "t", "u")
    pass_ticks(world)
    assert leaders(world) == AWAY
