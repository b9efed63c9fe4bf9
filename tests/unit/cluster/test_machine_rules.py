"""Single rules of the machine: fencing of ISR proposals, returning disks, moves, deletion."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

import pytest

from headwater.errors import ErrorCode
from headwater_broker.cluster.controller.events import (
    AlterConfigs,
    ConfigEdit,
    ControlledShutdown,
    CreatePartitions,
    DeleteTopics,
    Growth,
    Reassign,
    ResourceKind,
)
from unit.cluster.machine_world import World


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    for broker_id in (1, 2, 3):
        made.up(broker_id)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({}, ErrorCode.NONE),
        ({"broker_epoch": 0}, ErrorCode.STALE_BROKER_EPOCH),
        ({"leader_epoch": -1}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"leader_epoch": 9}, ErrorCode.NOT_CONTROLLER),
        ({"partition_epoch": -1}, ErrorCode.INVALID_UPDATE_VERSION),
        ({"partition_epoch": 9}, ErrorCode.NOT_CONTROLLER),
        ({"member_epoch": 99}, ErrorCode.INELIGIBLE_REPLICA),
        ({"leader": 2}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_isr_proposals_are_fenced(world: World, wrong: dict[str, int], code: ErrorCode) -> None:
    world.create("t", (1, 2, 3))
    assert world.alter_isr(world.partition("t"), (1, 3), **wrong) == code
    assert world.partition("t").isr == ((1, 3) if code is ErrorCode.NONE else (1, 2, 3))


def test_an_isr_change_keeps_the_leader_epoch(world: World) -> None:
    world.create("t", (1, 2, 3))
    world.down(3)
    partition = world.partition("t")
    assert (partition.leader, partition.leader_epoch, partition.isr) == (1, 0, (1, 2))
    world.down(1)
    assert (partition.leader, partition.leader_epoch, partition.isr) == (2, 1, (2,))


def test_power_loss_leaves_the_isr_unless_clean_or_last(world: World) -> None:
    world.create("t", (1, 2, 3))
    world.up(2, power_loss=True)
    assert world.partition("t").isr == (1, 3)
    world.down(3)
    world.up(1, power_loss=True)
    assert (world.partition("t").leader, world.partition("t").isr) == (1, (1,))


def test_unclean_election_is_the_topics_choice() -> None:
    world = World()
    for broker_id in (1, 2):
        world.up(broker_id)
    world.create("careful", (1, 2))
    world.create("loose", (1, 2), unclean_leader_election_enable="true")
    world.down(2)
    world.up(2)
    world.down(1)
    assert world.partition("careful").leader == -1
    assert "broker 1 is not running" in world.partition("careful").offline_reason
    assert (world.partition("loose").leader, world.partition("loose").isr) == (2, (2,))
    edit = ConfigEdit(
        ResourceKind.TOPIC, "careful", False, (("unclean.leader.election.enable", 0, "true"),)
    )
    world.ask(lambda token: AlterConfigs(token, (edit,), False))
    assert world.partition("careful").leader == 2
    world.close()


def test_controlled_shutdown_hands_over(world: World) -> None:
    world.create("t", (1, 2), (2, 1))
    world.create("single", (1,))
    epoch = world.registered[1].epoch
    for broker_id, told in ((1, epoch - 1), (9, epoch)):
        refused = world.ask(lambda token, b=broker_id, e=told: ControlledShutdown(token, b, e))
        assert refused.error_code == ErrorCode.STALE_BROKER_EPOCH
    assert [world.partition("t", i).leader for i in (0, 1)] == [1, 2]
    reply = world.ask(lambda token: ControlledShutdown(token, 1, epoch))
    assert (reply.error_code, reply.remaining) == (0, 0)
    assert [world.partition("t", i).leader for i in (0, 1)] == [2, 2]
    assert world.partition("single").leader == 1
    assert world.partition("t", 1).isr == (2,)
    assert world.alter_isr(world.partition("t"), (2, 1)) == ErrorCode.INELIGIBLE_REPLICA


def test_reassignment_in_two_phases_survives_a_failover(world: World) -> None:
    world.create("t", (1, 2))
    target = {("t", 0): (1, 3)}
    world.ask(lambda token: Reassign(token, target))
    assert world.partition("t").replicas == (1, 3, 2)
    world.fail_over()
    partition = world.partition("t")
    assert (partition.adding, partition.removing) == ((3,), (2,))
    assert world.alter_isr(partition, (1, 2, 3)) == ErrorCode.NONE
    assert (partition.replicas, partition.isr, partition.adding) == ((1, 3), (1, 3), ())
    deleted = [(u.broker_id, s.partition) for u in world.updates for s in u.stops if s.delete]
    assert deleted == [(2, 0)]


def test_growth_and_its_refusals(world: World) -> None:
    world.create("t", (1, 2))

    def grow(count: int, assignments: tuple[tuple[int, ...], ...] | None = None) -> ErrorCode:
        row = Growth("t", count, assignments)
        [result] = world.ask(lambda token: CreatePartitions(token, (row,), False))
        return ErrorCode(result.error)

    assert grow(1) is ErrorCode.INVALID_PARTITIONS
    assert grow(2, ((1,),)) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert grow(2, ((3, 1),)) is ErrorCode.NONE
    assert grow(4) is ErrorCode.NONE
    assert world.partition("t", 1).leader == 3
    assert all(world.partition("t", i).leader > 0 for i in range(4))


@pytest.mark.parametrize(
    ("name", "configs", "code"),
    [
        ("", {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("..", {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a b", {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("x" * 250, {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a_b", {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a.b", {}, ErrorCode.TOPIC_ALREADY_EXISTS),
        ("ok", {"retention_ms": "soon"}, ErrorCode.INVALID_CONFIG),
        ("ok", {"retention_ms": "5"}, ErrorCode.NONE),
    ],
)
def test_topic_checks(world: World, name: str, configs: dict[str, str], code: ErrorCode) -> None:
    world.create("a.b", (1,))
    assert world.create(name, (1,), **configs).error is code


@pytest.mark.parametrize(
    ("replace", "operation", "refused"),
    [
        (False, ("remote.storage.enable", 0, "false"), True),
        (False, ("remote.storage.enable", 1, None), True),
        (True, ("retention.ms", 0, "5"), True),
        (True, ("remote.storage.enable", 0, "TRUE"), False),
        (False, ("retention.ms", 0, "5"), False),
    ],
)
def test_tiering_is_not_switched_off(
    world: World, replace: bool, operation: tuple[str, int, str | None], refused: bool
) -> None:
    world.create("t", (1,), remote_storage_enable="true")
    edit = ConfigEdit(ResourceKind.TOPIC, "t", replace, (operation,))
    [result] = world.ask(lambda token: AlterConfigs(token, (edit,), False))
    assert result.error is (ErrorCode.INVALID_CONFIG if refused else ErrorCode.NONE)
    assert ("stop `headwater tier run`" in (result.message or "")) is refused
    world.fail_over()
    assert world.machine.state.topics["t"].configs["remote.storage.enable"].lower() == "true"


def test_a_name_is_free_at_once_after_deletion(world: World) -> None:
    first = world.create("t", (1, 2)).topic_id
    world.down(2)
    world.ask(lambda token: DeleteTopics(token, (("t", UUID(int=0)),)))
    second = world.create("t", (1,)).topic_id
    assert first != second
    world.fail_over()
    assert set(world.machine.state.removals) == {first}
    world.up(2)
    assert world.machine.state.removals == {}
    assert world.partition("t").topic_id == second
