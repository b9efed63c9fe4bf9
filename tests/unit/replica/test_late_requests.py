"""A control request that timed out at the controller and arrives after later decisions."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

from headwater.errors import ErrorCode
from headwater.records.builder import build_batch
from headwater.wire.control import (
    LeaderAndIsrReply,
    LeaderAndIsrRequest,
    PartitionState,
    StopReplicaPartition,
    StopReplicaReply,
    StopReplicaRequest,
)
from solo_broker import BROKER_EPOCH, SoloBroker
from unit.replica.test_manager import play

FORMER, LATTER = UUID(int=1), UUID(int=2)


async def host(broker: SoloBroker, sequence: int, topic_id: UUID = FORMER) -> LeaderAndIsrReply:
    state = PartitionState(
        topic="t", topic_id=topic_id, partition=0, leader_id=1, leader_epoch=0,
        partition_epoch=0, isr=(1, 2), replicas=(1, 2), is_new=True,
    )  # fmt: skip
    request = LeaderAndIsrRequest(
        controller_id=1,
        controller_epoch=5,
        broker_epoch=BROKER_EPOCH,
        partitions=(state,),
        sequence=sequence,
    )
    return await broker.replicas.handle_leader_and_isr(request)


async def delete(broker: SoloBroker, sequence: int) -> StopReplicaReply:
    row = StopReplicaPartition(
        topic="t", topic_id=FORMER, partition=0, leader_epoch=-1, delete=True
    )
    request = StopReplicaRequest(
        controller_id=1,
        controller_epoch=5,
        broker_epoch=BROKER_EPOCH,
        partitions=(row,),
        sequence=sequence,
    )
    return await broker.replicas.handle_stop_replica(request)


def fill(broker: SoloBroker) -> None:
    data = memoryview(bytearray(build_batch([(1, None, b"x", ())])))
    broker.replicas.lookup("t", 0).append(data, 1, 0)


def test_a_replica_that_was_moved_away_and_back_is_not_deleted(tmp_path: Path) -> None:
    async def story(broker: SoloBroker) -> None:
        await host(broker, 1)
        await delete(broker, 3)  # repeated: the answer to request 2 did not come
        await host(broker, 4)
        fill(broker)
        late = await delete(broker, 2)
        assert late.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
        replica = broker.replicas.lookup("t", 0)
        assert (replica.is_leader, replica.log.log_end_offset) == (True, 1)

    play(tmp_path, story)


def test_a_deleted_topic_does_not_take_the_place_of_its_successor(tmp_path: Path) -> None:
    async def story(broker: SoloBroker) -> None:
        await delete(broker, 2)
        await host(broker, 3, LATTER)
        fill(broker)
        late = await host(broker, 1)
        assert late.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
        replica = broker.replicas.lookup("t", 0)
        assert (replica.topic_id, replica.log.log_end_offset) == (LATTER, 1)

    play(tmp_path, story)
