"""Eligible leader replicas: they left an ISR below min.insync.replicas and have every committed
record (KIP-966)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from headwater.ports.metadata_store import Create, Set
from headwater_broker.controller.decisions import leader_selectors
from headwater_broker.controller.decisions.leader_selectors import Case, Choice
from headwater_broker.controller.events import (
    AlterConfigs,
    BrokerChange,
    ConfigEdit,
    ResourceKind,
)
from headwater_broker.controller.state import Partition
from headwater_broker.metadata import znodes
from unit.controller.machine_world import World

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


def test_a_replica_that_leaves_a_short_isr_is_eligible_until_the_isr_is_long_enough(
    world: World,
) -> None:
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
def test_a_follower_that_dies_with_the_leader_stays_in_the_isr(world: World, found_by: str) -> None:
    world.create("other", (3, 1, 2), min_insync_replicas="2")
    if found_by == "the next controller":
        for broker_id in (1, 2, 3):
            del world.registered[broker_id]
        world.fail_over()
        world.handle(BrokerChange({}))
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


def test_a_lower_minimum_empties_the_elr(world: World) -> None:
    world.down(3)
    world.down(2)
    edit = ConfigEdit(ResourceKind.TOPIC, "t", False, (("min.insync.replicas", SET, "1"),))
    world.ask(lambda token: AlterConfigs(token, (edit,), False))
    assert shown(world.partition("t")) == (1, (1,), ())


@pytest.fixture
def two_in_files() -> Iterator[World]:
    """min.insync.replicas is 2 in every broker's file, without a topic override; the ISR is (1)."""
    made = World()
    made.config = replace(made.config, min_insync_replicas=2)
    made.fail_over()
    for broker_id in (1, 2, 3):
        made.up(broker_id, min_insync_replicas=2)
    made.create("t", (1, 2))
    made.down(2)
    assert shown(made.partition("t")) == (1, (1,), (2,))
    yield made
    made.close()


@pytest.mark.parametrize("is_seen", ["by this controller", "by the next one"])
def test_a_leader_back_with_a_lower_minimum_in_its_file_empties_the_elr(
    two_in_files: World, is_seen: str
) -> None:
    """The leader then commits alone: another one would truncate acknowledged records."""
    world = two_in_files
    world.down(1)
    world.up(1, min_insync_replicas=1)
    if is_seen == "by the next one":
        world.fail_over()
    assert shown(world.partition("t")) == (1, (1,), ())
    world.down(1)
    world.up(2, min_insync_replicas=2)
    assert shown(world.partition("t")) == (-1, (1,), ())


def test_the_minimum_of_a_broker_that_is_away_is_remembered(two_in_files: World) -> None:
    world = two_in_files
    world.up(2, min_insync_replicas=1)
    assert shown(world.partition("t")) == (1, (1,), ())
    assert world.alter_isr(world.partition("t"), (1, 2)) == 0
    world.down(2)
    assert shown(world.partition("t")) == (1, (1,), ()), "it may have led"
    world.fail_over()
    world.up(2, min_insync_replicas=2)
    assert world.alter_isr(world.partition("t"), (1, 2)) == 0
    world.down(2)
    assert shown(world.partition("t")) == (1, (1,), (2,))


def test_a_broker_of_an_older_version_may_commit_alone(world: World) -> None:
    world.up(1, min_insync_replicas=2)
    row = json.loads(world.registered[1].registration.encode())
    del row["min_insync_replicas"]
    told = znodes.BrokerRegistration.decode(1, json.dumps(row).encode())
    assert told.min_insync_replicas == 1
    life = znodes.LastRegistration.decode("/l", b'{"version":1,"broker_epoch":4,"boot_id":"b"}')
    assert life.min_insync_replicas == 1


def leader_goes_unseen(world: World) -> None:
    """Broker 2 is live again and not in sync. Then leader and controller die together."""
    world.up(2, min_insync_replicas=2)
    assert shown(world.partition("t")) == (1, (1,), (2,))
    del world.registered[1]


def test_an_eligible_replica_leads_when_the_next_controller_finds_no_leader(
    two_in_files: World,
) -> None:
    leader_goes_unseen(two_in_files)
    two_in_files.fail_over()
    assert shown(two_in_files.partition("t")) == (2, (2,), (1,))


def test_the_next_controller_has_a_lower_minimum_in_its_file(two_in_files: World) -> None:
    world = two_in_files
    leader_goes_unseen(world)
    world.config = replace(world.config, min_insync_replicas=1)
    world.fail_over()
    assert shown(world.partition("t")) == (-1, (1,), ())


def test_a_minimum_stored_without_what_follows_from_it_counts_before_any_election(
    world: World,
) -> None:
    """The controller died between the two writes, together with the leader, which knew of it."""
    world.down(3)
    world.down(2)
    leader_goes_unseen(world)
    path = znodes.topic_config_path("t")
    data = znodes.encode_overrides({"min.insync.replicas": "1"})
    world.run(world.store.multi([Set(path, data)]))
    world.fail_over()
    assert shown(world.partition("t")) == (-1, (1,), ())
    world.fail_over()
    assert shown(world.partition("t")) == (-1, (1,), ()), "it is stored"


@pytest.mark.parametrize(("known", "elr"), [(2, (2, 3)), (1, ())])
def test_the_leader_stops_committing_by_the_minimum_it_knows(
    world: World, known: int, elr: tuple[int, ...]
) -> None:
    assert world.alter_isr(world.partition("t"), (1,), min_insync_replicas=known) == 0
    assert shown(world.partition("t")) == (1, (1,), elr)


def test_an_unclean_election_empties_the_elr(world: World) -> None:
    world.create("loose", (1, 2, 3), min_insync_replicas="2", unclean_leader_election_enable="true")
    for broker_id in (3, 2, 1):
        world.down(broker_id)
    world.up(3)
    assert shown(world.partition("loose")) == (3, (3,), ())


@pytest.mark.parametrize(
    ("of_all", "own", "leader"),
    [
        ("false", None, -1),
        ("TRUE ", "false", -1),
        ("false", "true", 2),
        ("perhaps", None, 2),
    ],
)
def test_a_stored_unclean_election_counts_before_any_election(
    of_all: str, own: str | None, leader: int
) -> None:
    """After all brokers were down the controller's own file allows it, but a dynamic config in the
    store forbids it."""
    world = World(unclean=True)
    for broker_id in (1, 2):
        world.up(broker_id)
    world.create("t", (1, 2))
    world.down(2)
    stored = {"": of_all} if own is None else {"": of_all, "1": own}
    for name, value in stored.items():
        data = znodes.encode_overrides({"unclean.leader.election.enable": value})
        world.run(world.store.multi([Create(znodes.broker_config_path(name), data)]))
    world.down(1)
    world.fail_over()
    world.up(2)
    assert world.partition("t").leader == leader
    world.close()


def test_the_selector_asks_the_in_sync_first() -> None:
    both = frozenset({2, 3})
    choice = leader_selectors.offline((1, 2, 3), (1, 3), both, unclean=True, elr=(2,))
    assert choice == Choice(Case.CLEAN, 3, (3,))
    choice = leader_selectors.offline((1, 2, 3), (1,), both, unclean=True, elr=(3, 2))
    assert choice == Choice(Case.ELIGIBLE, 2, (3, 2))
