"""Who leaves an ISR below min.insync.replicas still holds all that is committed (KIP-966)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headwater_broker.cluster.controller import selectors
from headwater_broker.cluster.controller.events import (
    AlterConfigs,
    BrokersFound,
    ConfigEdit,
    ResourceKind,
)
from headwater_broker.cluster.controller.selectors import Case, Choice
from headwater_broker.cluster.controller.state import Partition
from unit.cluster.machine_world import World

SET = 0


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    for broker_id in (1, 2, 3):
        made.up(broker_id)
    made.create("t", (1, 2, 3), min_insync_replicas="2")
    yield made
    made.close()


def shown(partition: Partition) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    return partition.leader, partition.isr, partition.elr


def test_who_leaves_a_short_isr_is_eligible_until_it_is_long_enough(world: World) -> None:
    world.down(3)
    assert shown(world.partition("t")) == (1, (1, 2), ())
    world.down(2)
    assert shown(world.partition("t")) == (1, (1,), (2,))
    told = [state.eligible_leader_replicas for u in world.updates for state in u.metadata]
    assert told[-1] == (2,)
    world.up(3)
    assert world.alter_isr(world.partition("t"), (1, 3)) == 0
    assert shown(world.partition("t")) == (1, (1, 3), ())


def test_the_last_in_sync_loses_its_power_and_an_eligible_one_leads(world: World) -> None:
    world.down(3)
    world.down(2)
    world.down(1)
    world.up(1, power_loss=True)
    assert shown(world.partition("t")) == (-1, (2,), ())
    world.up(2)
    assert shown(world.partition("t"))[:2] == (2, (2,))


@pytest.mark.parametrize("found_by", ["a session's end", "the next controller"])
def test_who_dies_with_the_leader_stays_in_the_isr(world: World, found_by: str) -> None:
    world.create("other", (3, 1, 2), min_insync_replicas="2")
    if found_by == "the next controller":
        for broker_id in (1, 2, 3):
            del world.registered[broker_id]
        world.fail_over()
        world.handle(BrokersFound({}))
    else:
        world.down(1, 2, 3)
    assert shown(world.partition("t")) == (-1, (1, 2, 3), ())
    assert shown(world.partition("other")) == (-1, (3, 1, 2), ())
    world.up(2)
    assert shown(world.partition("t")) == (2, (2,), (1, 3))
    assert shown(world.partition("other")) == (2, (2,), (3, 1))


def test_an_eligible_one_leads_while_the_last_in_sync_is_away(world: World) -> None:
    world.down(3)
    world.down(2)
    world.up(2)
    world.down(1)
    assert shown(world.partition("t")) == (2, (2,), (1,))
    world.up(1, wiped=True)
    assert shown(world.partition("t")) == (2, (2,), ())


def test_the_next_controller_knows_it(world: World) -> None:
    world.down(3)
    world.down(2)
    world.down(1)
    world.fail_over()
    world.up(1, wiped=True)
    assert shown(world.partition("t")) == (-1, (2,), ())


def test_an_eligible_one_that_lost_data_is_none_any_more(world: World) -> None:
    world.down(3)
    world.down(2)
    world.up(2, power_loss=True)
    assert shown(world.partition("t")) == (1, (1,), ())


def test_without_others_the_last_stays(world: World) -> None:
    world.down(3)
    world.down(2)
    world.up(2, wiped=True)
    world.down(1)
    world.up(1, power_loss=True)
    assert shown(world.partition("t")) == (1, (1,), ()), "Kafka's LastKnownElr, as an ISR of one"


def test_a_lower_minimum_makes_nobody_eligible(world: World) -> None:
    world.down(3)
    world.down(2)
    edit = ConfigEdit(ResourceKind.TOPIC, "t", False, (("min.insync.replicas", SET, "1"),))
    world.ask(lambda token: AlterConfigs(token, (edit,), False))
    assert shown(world.partition("t")) == (1, (1,), ())


@pytest.mark.parametrize(("known", "elr"), [(2, (2, 3)), (1, ())])
def test_the_leader_stops_committing_by_the_minimum_it_knows(
    world: World, known: int, elr: tuple[int, ...]
) -> None:
    assert world.alter_isr(world.partition("t"), (1,), min_insync_replicas=known) == 0
    assert shown(world.partition("t")) == (1, (1,), elr)


def test_an_unclean_leader_leaves_nobody_eligible(world: World) -> None:
    world.create("loose", (1, 2, 3), min_insync_replicas="2", unclean_leader_election_enable="true")
    for broker_id in (3, 2, 1):
        world.down(broker_id)
    world.up(3)
    assert shown(world.partition("loose")) == (3, (3,), ())


def test_the_selector_asks_the_in_sync_first() -> None:
    both = frozenset({2, 3})
    choice = selectors.offline((1, 2, 3), (1, 3), both, unclean=True, elr=(2,))
    assert choice == Choice(Case.CLEAN, 3, (3,))
    choice = selectors.offline((1, 2, 3), (1,), both, unclean=True, elr=(3, 2))
    assert choice == Choice(Case.ELIGIBLE, 2, (3, 2))
