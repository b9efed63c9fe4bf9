"""AssignReplicasToDirs: a broker reports a replica's new directory, and late requests are
ignored."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from headwater.errors import ErrorCode
from headwater.wire.control import (
    NOT_NUMBERED,
    AssignReplicasToDirsReply,
    AssignReplicasToDirsRequest,
    LeaderAndIsrReply,
    PartitionError,
)
from headwater_broker.controller.events import (
    AssignReplicaToDir,
    BrokerChange,
    LeaderAndIsrResponseReceived,
    Reassign,
    RegisteredBroker,
    Tick,
)
from headwater_broker.metadata.controller_channel import ControllerChannel
from unit.controller.brokers_in_memory import Cluster, until
from unit.controller.machine_world import World
from unit.controller.test_store_requests import play

OTHER = UUID(int=4711)


def test_one_that_was_given_up_changes_nothing_when_it_comes_late(world: World) -> None:
    world.create("t", (1, 2))
    first = world.directories[1]
    partition = world.partition("t")

    def comes_with_two_disks() -> None:
        world.last_broker_epoch += 1
        registration = replace(world.registered[1].registration, directory_ids=(first, OTHER))
        world.registered[1] = RegisteredBroker(world.last_broker_epoch, registration)
        world.handle(BrokerChange(dict(world.registered)))

    def assign(directory: UUID, number: int, broker_epoch: int | None = None) -> int:
        request = AssignReplicasToDirsRequest(
            broker_id=1,
            broker_epoch=world.registered[1].epoch if broker_epoch is None else broker_epoch,
            topic_id=partition.topic_id,
            partition=0,
            directory_id=directory,
            sequence=number,
        )
        return int(world.ask(lambda token: AssignReplicaToDir(token, request)).error_code)

    comes_with_two_disks()
    assert assign(OTHER, 5) == ErrorCode.NONE
    assert assign(first, 4) == ErrorCode.INVALID_UPDATE_VERSION
    assert partition.directories[1] == OTHER
    assert assign(OTHER, 5) == ErrorCode.NONE, "repeated: its answer was lost"
    assert assign(first, NOT_NUMBERED) == ErrorCode.NONE, "of an older release"
    assert partition.directories[1] == first
    assert assign(OTHER, 4) == ErrorCode.INVALID_UPDATE_VERSION
    assert assign(OTHER, 9, broker_epoch=1) == ErrorCode.STALE_BROKER_EPOCH
    comes_with_two_disks()
    assert assign(OTHER, 1) == ErrorCode.NONE, "a restarted broker begins anew"
    assert partition.directories[1] == OTHER


def test_a_broker_numbers_what_it_tells() -> None:
    async def story(cluster: Cluster) -> None:
        [broker] = cluster.brokers.values()
        await until(lambda: broker.controller.is_active)
        told: list[int] = []

        async def note(request: AssignReplicasToDirsRequest) -> AssignReplicasToDirsReply:
            told.append(request.sequence)
            # NOT_CONTROLLER: the request is repeated with the same number.
            code = ErrorCode.NOT_CONTROLLER if len(told) == 1 else ErrorCode.NONE
            return AssignReplicasToDirsReply(error_code=code)

        local: Any = SimpleNamespace(handlers=lambda: {AssignReplicasToDirsRequest: note})
        channel = ControllerChannel(
            1, lambda: 7, broker.store, cluster.network.calls(), local, broker.clock
        )
        for _ in range(2):
            code = await channel.assign_directory(UUID(int=1), 0, OTHER, 20_000)
            assert code is ErrorCode.NONE
        assert NOT_NUMBERED not in told
        assert told[0] == told[1] < told[2]

    play(story, brokers=1)


def test_a_folder_that_the_broker_does_not_have_is_none_to_live_in(world: World) -> None:
    """It would count as lost: the replica would leave the ISR, and a leader would be replaced."""
    world.create("t", (1, 2))
    partition = world.partition("t")
    now = partition.directories[1]
    for topic_id, index, directory, code in (
        (partition.topic_id, 0, OTHER, ErrorCode.LOG_DIR_NOT_FOUND),
        (partition.topic_id, 1, now, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (OTHER, 0, now, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ):
        request = AssignReplicasToDirsRequest(
            broker_id=1,
            broker_epoch=world.registered[1].epoch,
            topic_id=topic_id,
            partition=index,
            directory_id=directory,
            sequence=1,
        )
        reply = world.ask(lambda token, request=request: AssignReplicaToDir(token, request))
        assert reply.error_code == code
    assert partition.directories[1] == now
    world.fail_over()
    assert (world.partition("t").leader, world.partition("t").isr) == (1, (1, 2))


def test_a_replica_with_an_unknown_directory_joins_no_isr(world: World) -> None:
    """With several directories it could lead unnoticed after the loss of that disk."""
    registration = replace(
        world.registered[3].registration, directory_ids=(world.directories[3], OTHER)
    )
    world.registered[3] = RegisteredBroker(world.last_broker_epoch + 1, registration)
    world.handle(BrokerChange(dict(world.registered)))
    world.create("t", (1, 2))
    world.ask(lambda token: Reassign(token, {("t", 0): (1, 2, 3)}))
    partition = world.partition("t")
    assert 3 not in partition.directories
    assert world.alter_isr(partition, (1, 2, 3)) == ErrorCode.INELIGIBLE_REPLICA
    row = PartitionError(
        topic_id=partition.topic_id, partition=0, error_code=ErrorCode.NONE, directory_id=OTHER
    )
    reply = LeaderAndIsrReply(error_code=ErrorCode.NONE, partitions=(row,))
    world.handle(LeaderAndIsrResponseReceived(3, world.registered[3].epoch, reply))
    assert world.alter_isr(partition, (1, 2, 3)) == ErrorCode.NONE
    assert (partition.isr, partition.directories[3]) == ((1, 2, 3), OTHER)


def test_an_answer_does_not_make_up_for_a_lost_folder(world: World) -> None:
    """Otherwise the empty replica would be elected later."""
    topic_id = world.create("t", (2,)).topic_id
    old = world.directories[2]
    world.down(2)
    world.up(2, wiped=True)
    row = PartitionError(
        topic_id=topic_id, partition=0, error_code=0, directory_id=world.directories[2]
    )
    reply = LeaderAndIsrReply(error_code=ErrorCode.NONE, partitions=(row,))
    world.handle(LeaderAndIsrResponseReceived(2, world.registered[2].epoch, reply))
    world.handle(Tick())
    assert (world.partition("t").leader, world.partition("t").directories) == (-1, {2: old})
