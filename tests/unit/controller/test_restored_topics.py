"""Topics that `headwater restore` wrote: no replica exists, and leader epochs go on."""

from __future__ import annotations

from uuid import UUID

from headwater.ports.metadata_store import Create, Operation
from headwater_broker.metadata import znodes
from unit.controller.machine_world import World
from unit.controller.test_znodes_by_hand import put

ID = UUID(int=77)


def restored(*replicas: int, epoch: int) -> list[Operation]:
    record = znodes.PartitionRecord(
        leader=-1, leader_epoch=epoch, isr=(), controller_epoch=0
    ).encode()
    assignment = znodes.TopicAssignment(topic_id=ID, partitions={0: replicas}).encode()
    return [
        Create(znodes.topic_path("t"), assignment),
        Create(znodes.partitions_path("t")),
        Create(znodes.partition_path("t", 0)),
        Create(znodes.state_path("t", 0), record),
    ]


def test_the_first_election_creates_the_replicas_in_the_restored_epoch(world: World) -> None:
    put(world, *restored(2, 1, epoch=103))
    world.fail_over()
    partition = world.partition("t")
    assert (partition.topic_id, partition.leader) == (ID, 2)
    assert sorted(partition.isr) == [1, 2]
    assert partition.leader_epoch == 103
    stored = world.run(world.store.get(znodes.state_path("t", 0)))
    record = znodes.PartitionRecord.decode("", stored.data)
    assert (record.leader, record.leader_epoch) == (2, 103)


def test_without_a_live_replica_the_partition_waits_for_one(world: World) -> None:
    world.down(2)
    put(world, *restored(2, epoch=103))
    world.fail_over()
    assert world.partition("t").leader == -1
    world.up(2)
    assert (world.partition("t").leader, world.partition("t").leader_epoch) == (2, 103)


def test_later_elections_raise_the_epoch_as_ever(world: World) -> None:
    put(world, *restored(1, 2, epoch=103))
    world.fail_over()
    world.down(1)
    assert (world.partition("t").leader, world.partition("t").leader_epoch) == (2, 104)
    world.fail_over()
    assert world.partition("t").leader == 2
