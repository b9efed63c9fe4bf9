"""Two changes of a partition in one round are one write, and replies hold the written state."""

from __future__ import annotations

from headwater.wire.control import AlterPartitionItem, AlterPartitionRequest, IsrMember
from headwater_broker.controller.events import AlterPartition, BrokerChange, Reassign
from unit.controller.machine_world import World

TOKEN = 4711


def test_a_leader_whose_proposal_overtakes_its_new_replicas_gets_them(world: World) -> None:
    """It learns the partition epoch from a reply without replicas, and LeaderAndIsr comes later."""
    world.up(4)
    world.create("t", (1, 2, 3))
    partition = world.partition("t")
    assert world.alter_isr(partition, (1, 2)) == 0
    world.ask(lambda token: Reassign(token, {("t", 0): (1, 2, 3, 4)}))
    world.updates.clear()
    assert world.alter_isr(partition, (1, 2, 3)) == 0
    [told] = [row for u in world.updates if u.broker_id == 1 for row in u.replicas]
    assert (told.partition_epoch, told.replicas) == (partition.version, (1, 2, 3, 4))


def test_a_member_that_joins_and_leaves_in_one_round_is_not_reported_as_a_member(
    world: World,
) -> None:
    """The leader would keep the member under a partition epoch that stands for the ISR without it,
    and never propose it again."""
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
    world.machine.handle(BrokerChange(dict(world.registered)))
    world.settle()
    [row] = world.replies.pop(TOKEN).partitions
    assert partition.isr == (1, 2)
    assert (row.isr, row.partition_epoch) == (partition.isr, partition.version)
