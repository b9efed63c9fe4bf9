"""A replica that its broker may not know of is new for the next controller, too."""

from __future__ import annotations

from headwater.errors import ErrorCode
from headwater.wire.control import LeaderAndIsrReply, PartitionError
from headwater_broker.controller.events import LeaderAndIsrResponseReceived, Reassign
from headwater_broker.metadata import znodes
from unit.controller.machine_world import World


def answered(world: World, broker_id: int, code: ErrorCode = ErrorCode.NONE) -> None:
    """The broker's reply to LeaderAndIsr for t-0."""
    partition = world.partition("t")
    [directory, *_] = world.registered[broker_id].registration.directory_ids
    row = PartitionError(
        topic_id=partition.topic_id, partition=0, error_code=code, directory_id=directory
    )
    reply = LeaderAndIsrReply(error_code=0, partitions=(row,))
    world.handle(LeaderAndIsrResponseReceived(broker_id, world.registered[broker_id].epoch, reply))


def told_as_new(world: World) -> set[int]:
    """Brokers whose last state of t-0 had `is_new`."""
    last = {u.broker_id: row for u in world.updates for row in u.replicas}
    return {broker_id for broker_id, row in last.items() if row.is_new}


def stored(world: World) -> tuple[int, ...]:
    node = world.run(world.store.get(znodes.state_path("t", 0)))
    return znodes.PartitionRecord.decode("t", node.data).uncreated


def test_the_next_controller_tells_it_as_new_and_so_does_an_election(world: World) -> None:
    """A leader was stored, the controller died before it sent LeaderAndIsr, and then the leader
    died: the next leader may start with an empty log."""
    world.create("t", (1, 2, 3))
    assert stored(world) == (1, 2, 3)
    world.updates.clear()
    world.fail_over()
    assert told_as_new(world) == {1, 2, 3}
    world.updates.clear()
    world.down(1)
    partition = world.partition("t")
    assert (partition.leader, partition.leader_epoch) == (2, 1)
    assert told_as_new(world) == {2, 3}


def test_a_broker_that_has_confirmed_gets_no_new_replica_again(world: World) -> None:
    world.create("t", (1, 2, 3))
    answered(world, 1)
    answered(world, 2)
    answered(world, 3, ErrorCode.KAFKA_STORAGE_ERROR)
    assert stored(world) == (3,)
    world.updates.clear()
    world.fail_over()
    assert told_as_new(world) == {3}


def test_a_member_of_the_isr_has_fetched(world: World) -> None:
    world.create("t", (1, 2))
    world.ask(lambda token: Reassign(token, {("t", 0): (1, 2, 3)}))
    for broker_id in (1, 2):
        answered(world, broker_id)
    assert world.partition("t").uncreated == {3}
    world.alter_isr(world.partition("t"), (1, 2, 3))
    assert stored(world) == ()


def test_a_cancelled_move_makes_nothing(world: World) -> None:
    world.create("t", (1, 2))
    world.ask(lambda token: Reassign(token, {("t", 0): (1, 3)}))
    world.ask(lambda token: Reassign(token, {("t", 0): None}))
    assert 3 not in world.partition("t").uncreated
