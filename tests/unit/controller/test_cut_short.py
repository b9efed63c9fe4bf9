"""A controller dies after any of its writes: the next one finishes, and deletes no used replica."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest

from headwater.errors import ErrorCode
from headwater.ports.metadata_store import Check, Create
from headwater.wire.control import AlterPartitionItem, AlterPartitionRequest, IsrMember
from headwater_broker.controller import write_batches
from headwater_broker.controller.events import (
    AlterPartition,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    Event,
    NewTopic,
    PartitionGrowth,
    Reassign,
    Tick,
)
from headwater_broker.controller.state import Partition
from headwater_broker.metadata import znodes
from unit.controller.machine_world import World

TOKEN = 4711
NO_ID = UUID(int=0)


def reassign(world: World, *target: int) -> ErrorCode:
    [(code, _)] = world.ask(lambda token: Reassign(token, {("t", 0): target})).values()
    return ErrorCode(code)


def joined(world: World, index: int) -> AlterPartition:
    """The leader proposes all replicas as the ISR."""
    partition = world.partition("t", index)
    item = AlterPartitionItem(
        topic_id=partition.topic_id,
        partition=index,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.version,
        min_insync_replicas=1,
        new_isr=tuple(
            IsrMember(broker_id=b, broker_epoch=world.registered[b].epoch)
            for b in partition.replicas
        ),
    )
    leader = partition.leader
    epoch = world.registered[leader].epoch
    request = AlterPartitionRequest(broker_id=leader, broker_epoch=epoch, partitions=(item,))
    return AlterPartition(TOKEN, request)


def deleted(world: World) -> set[tuple[int, int]]:
    """(partition, broker) of every replica that brokers were to delete."""
    return {(s.partition, u.broker_id) for u in world.updates for s in u.stops if s.delete}


STORIES: dict[str, Callable[[World], list[Event]]] = {
    "moves end": lambda world: [joined(world, 0), joined(world, 1)],
    "moves are cancelled": lambda world: [Reassign(TOKEN, {("t", 0): None, ("t", 1): None})],
    "moves are replaced": lambda world: [Reassign(TOKEN, {("t", 0): (4, 2), ("t", 1): (4,)})],
    "a topic is made": lambda _: [
        CreateTopics(TOKEN, (NewTopic(name="u", num_partitions=4, replication_factor=3),), False)
    ],
    "a topic grows as its moves end": lambda world: [
        joined(world, 0),
        CreatePartitions(TOKEN, (PartitionGrowth("t", 4, None),), False),
        joined(world, 1),
    ],
    "a topic grows": lambda _: [CreatePartitions(TOKEN, (PartitionGrowth("t", 4, None),), False)],
    "a topic goes": lambda _: [DeleteTopics(TOKEN, (("t", NO_ID),))],
    "a move ends as the topic goes": lambda world: [
        joined(world, 0),
        DeleteTopics(TOKEN, (("t", NO_ID),)),
    ],
    "a move is cancelled and begun again": lambda _: [
        Reassign(TOKEN, {("t", 0): None}),
        Reassign(TOKEN, {("t", 0): (3, 2)}),
    ],
}


@pytest.mark.parametrize("most_bytes", [write_batches.MULTI_BYTES_MAX, 300])
@pytest.mark.parametrize("story", STORIES)
def test_the_next_controller_finishes_what_one_began(
    world: World, story: str, most_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It dies before the first write, after one, and so on up to all of them; also when a topic's
    writes do not fit in one batch."""
    monkeypatch.setattr(write_batches, "MULTI_BYTES_MAX", most_bytes)
    world.up(4)
    count = cut = 0
    while cut <= count:
        old = tuple((name, NO_ID) for name in world.machine.state.topics)
        world.ask(lambda token, old=old: DeleteTopics(token, old))
        world.create("t", (1, 2), (2, 1))
        world.ask(lambda token: Reassign(token, {("t", 0): (3, 2), ("t", 1): (3,)}))
        for event in STORIES[story](world):
            world.machine.handle(event)
        writes = world.machine.take_ready().writes
        count = len(writes)
        fence = Check(znodes.CONTROLLER_EPOCH, world.controller_epoch)
        for group in writes[:cut]:
            world.run(world.store.multi([fence, *group]))
        world.updates.clear()
        world.fail_over()
        world.handle(Tick())
        left = {(p.index, b) for p in world.machine.state.partitions() for b in p.replicas}
        assert not deleted(world) & left, f"cut after {cut} of {count}"
        assert not world.machine.state.pending_deletions
        assert not world.run(world.store.children(znodes.DELETIONS))
        for partition in world.machine.state.partitions():
            _is_sound(partition)
            assert (partition.key in world.machine.state.reassigning) == bool(
                partition.adding or partition.removing
            )
        cut += 1
    assert count > 0


@pytest.mark.parametrize("leads", [True, False])
def test_a_power_loss_is_not_forgotten_with_the_controller_that_saw_it(
    world: World, leads: bool
) -> None:
    """The broker is back before its old session has ended. Its page cache is lost, and only its
    last registration shows that. With thousands of partitions the round takes several writes."""
    count = cut = 0
    while cut <= count:
        old = tuple((name, NO_ID) for name in world.machine.state.topics)
        world.ask(lambda token, old=old: DeleteTopics(token, old))
        replicas = (1, 2) if leads else (2, 1)
        world.create("t", replicas, replicas, replicas)
        world.returns_at_once(1, power_loss=True)
        writes = world.machine.take_ready().writes
        count = len(writes)
        fence = Check(znodes.CONTROLLER_EPOCH, world.controller_epoch)
        for group in writes[:cut]:
            world.run(world.store.multi([fence, *group]))
        world.fail_over()
        for partition in world.machine.state.partitions():
            told = f"{partition.name}: cut after {cut} of {count}"
            assert (partition.leader, partition.isr) == (2, (2,)), told
        cut += 1
    assert count > 3


def _is_sound(partition: Partition) -> None:
    assert partition.leader in partition.isr
    assert set(partition.isr) <= set(partition.replicas)


def test_a_pending_deletion_of_an_assigned_replica_deletes_nothing(world: World) -> None:
    """An older version wrote pending deletions before the replica lists."""
    world.create("t", (1, 2))
    world.ask(lambda token: Reassign(token, {("t", 0): (3,)}))
    topic_id = world.partition("t").topic_id
    note = znodes.Deletion("t", topic_id, {0: (1, 2), 7: (2,)}, is_topic_deletion=False)
    world.run(world.store.multi([Create(znodes.deletion_path(topic_id), note.encode())]))
    world.updates.clear()
    world.fail_over()
    assert deleted(world) == {(7, 2)}
    assert world.partition("t").isr == (1, 2)
    assert not world.run(world.store.children(znodes.DELETIONS))
    assert world.alter_isr(world.partition("t"), (1, 2, 3)) == ErrorCode.NEW_LEADER_ELECTED
    assert deleted(world) == {(7, 2), (0, 1), (0, 2)}


def test_a_pending_deletion_is_written_with_the_replica_lists(world: World) -> None:
    """Between two writes it would name replicas that are leaders."""
    world.create("t", (1, 2))
    assert reassign(world, 3) is ErrorCode.NONE
    world.machine.handle(joined(world, 0))
    paths = [{op.path for op in group} for group in world.machine.take_ready().writes]
    note = znodes.deletion_path(world.partition("t").topic_id)
    state = znodes.state_path("t", 0)
    assert [group for group in paths if note in group] == [{note, znodes.topic_path("t"), state}]


def test_a_move_cancelled_and_begun_again_in_one_round_makes_its_replica(world: World) -> None:
    world.create("t", (1, 2))
    assert reassign(world, 1, 3) is ErrorCode.NONE
    world.updates.clear()
    world.machine.handle(Reassign(TOKEN, {("t", 0): None}))
    world.machine.handle(Reassign(TOKEN, {("t", 0): (1, 3)}))
    world.settle()
    [told] = [u for u in world.updates if u.broker_id == 3]
    assert not told.stops
    assert [row.is_new for row in told.replicas] == [True]


def test_a_move_replaced_by_the_old_replicas_is_over(world: World) -> None:
    """It stayed in the list of reassignments as long as the controller lived."""
    world.create("t", (1, 2))
    assert reassign(world, 3) is ErrorCode.NONE
    assert reassign(world, 2, 1) is ErrorCode.NONE
    partition = world.partition("t")
    assert (partition.replicas, partition.adding, partition.removing) == ((2, 1), (), ())
    assert not world.machine.state.reassigning


def test_no_write_of_a_large_topic_is_larger_than_the_store_takes(world: World) -> None:
    """ZooKeeper closed the connection, and the controller sent the same write again, for ever."""
    count = 1500

    def biggest(*events: Event) -> int:
        for event in events:
            world.machine.handle(event)
        return max(map(write_batches.size_of, world.machine.take_ready().writes))

    world.up(4)
    spec = NewTopic(name="t", num_partitions=count, replication_factor=3)
    growth = PartitionGrowth("t", 2 * count, None)
    targets = {("t", index): (4,) for index in range(count)}
    for events in (
        (CreateTopics(TOKEN, (spec,), False),),
        (CreatePartitions(TOKEN, (growth,), False),),
        (Reassign(TOKEN, targets),),
        (Reassign(TOKEN, dict.fromkeys(targets)),),
    ):
        assert biggest(*events) <= write_batches.MULTI_BYTES_MAX
    [refused] = world.ask(
        lambda token: CreatePartitions(token, (PartitionGrowth("t", 20_001, None),), True)
    )
    assert refused.error is ErrorCode.INVALID_PARTITIONS
