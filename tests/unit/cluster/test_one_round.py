"""Two changes of one partition in one round are one write: who asked is told what was written."""

from __future__ import annotations

from headwater.wire.control import AlterPartitionItem, AlterPartitionRequest, IsrMember
from headwater_broker.cluster.controller.events import AlterPartition, BrokersFound
from unit.cluster.machine_world import World

TOKEN = 4711


def test_a_member_that_joins_and_goes_in_one_round_is_not_told_as_a_member(world: World) -> None:
    """The leader would keep it under the partition epoch that means the ISR without it, and never
    propose it again."""
    world.create("t", (1, 2, 3))
    partition = world.partition("t")
    assert world.alter_isr(partition, (1, 2)) == 0
    item = AlterPartitionItem(
        topic_id=partition.topic_id,
        partition=0,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.version,
        min_insync_replicas=2,
        new_isr=tuple(
            IsrMember(broker_id=b, broker_epoch=world.registered[b].epoch) for b in (1, 2, 3)
        ),
    )
    request = AlterPartitionRequest(
        broker_id=1, broker_epoch=world.registered[1].epoch, partitions=(item,)
    )
    world.machine.handle(AlterPartition(TOKEN, request))
    del world.registered[3]
    world.machine.handle(BrokersFound(dict(world.registered)))
    world.settle()
    [row] = world.replies.pop(TOKEN).partitions
    assert partition.isr == (1, 2)
    assert (row.isr, row.partition_epoch) == (partition.isr, partition.version)
