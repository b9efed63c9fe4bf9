"""A topic of the name of a deleted one, whose replicas go only later; folders that are told."""

from __future__ import annotations

import asyncio
from itertools import count
from pathlib import Path
from uuid import UUID

import pytest

from headwater.errors import ErrorCode
from headwater.wire.control import (
    ConfigEntry,
    LeaderAndIsrRequest,
    PartitionState,
    StopReplicaPartition,
    StopReplicaRequest,
    TopicState,
)
from solo_broker import BROKER_EPOCH, SoloBroker
from unit.replication.test_replica_manager import state, tell

OLD, NEW = UUID(int=1), UUID(int=2)
SEGMENT_BYTES = {OLD: 1_000_000, NEW: 2_000_000}
DEFAULT_BYTES = 1 << 30


class Controller:
    """Topics named `t`, by id."""

    def __init__(self, broker: SoloBroker) -> None:
        self._replicas = broker.replicas
        self._sequence = count(1)

    def make(self, topic_id: UUID, partitions: int) -> None:
        config = ConfigEntry(name="segment.bytes", value=str(SEGMENT_BYTES[topic_id]))
        reply = self._replicas.apply_leader_and_isr(
            LeaderAndIsrRequest(
                controller_id=1,
                controller_epoch=1,
                broker_epoch=BROKER_EPOCH,
                full=False,
                partitions=tuple(
                    PartitionState(
                        topic="t", topic_id=topic_id, partition=index, leader_id=1,
                        leader_epoch=0, partition_epoch=0, isr=(1,), replicas=(1,), is_new=True,
                    )
                    for index in range(partitions)
                ),
                topics=(TopicState(topic="t", topic_id=topic_id, configs=(config,)),),
                sequence=next(self._sequence),
            )
        )  # fmt: skip
        assert {row.error_code for row in reply.partitions} == {ErrorCode.NONE}

    def delete(self, topic_id: UUID, partitions: int) -> None:
        rows = tuple(
            StopReplicaPartition(
                topic="t", topic_id=topic_id, partition=index, leader_epoch=-1, delete=True
            )
            for index in range(partitions)
        )
        reply = self._replicas.stop_replica(
            StopReplicaRequest(
                controller_id=1,
                controller_epoch=1,
                broker_epoch=BROKER_EPOCH,
                partitions=rows,
                sequence=next(self._sequence),
            )
        )
        assert {row.error_code for row in reply.partitions} == {ErrorCode.NONE}


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_topic_made_again_keeps_its_own_overrides(tmp_path: Path, partitions: int) -> None:
    """LeaderAndIsr of the new topic comes before StopReplica of the old one: both waited together,
    or the broker registered anew meanwhile."""

    async def story() -> None:
        async with SoloBroker(tmp_path) as broker:
            controller = Controller(broker)
            controller.make(OLD, partitions)
            controller.make(NEW, 1)
            new = broker.replicas.lookup("t", 0)
            assert new.topic_id == NEW
            assert new.log.config.segment_bytes == SEGMENT_BYTES[NEW]
            controller.delete(OLD, partitions)
            broker.replicas.update_log_configs()  # as when a default of the brokers changes
            assert new.log.config.segment_bytes == SEGMENT_BYTES[NEW]
            broker.replicas.update_topic_configs(NEW, {})
            assert new.log.config.segment_bytes == DEFAULT_BYTES

    asyncio.run(story())


def test_leader_and_isr_is_answered_with_the_folder_that_a_move_was_told_to_end_in(
    tmp_path: Path,
) -> None:
    """The controller takes the answer for news: it would believe the replica in the folder that it
    leaves in the next moment."""
    folders = [f"{tmp_path}/a", f"{tmp_path}/b"]

    async def story() -> None:
        async with SoloBroker(tmp_path, log_dirs=",".join(folders)) as broker:
            [row] = tell(broker, state()).partitions
            key, own, futures = ("a", 0), row.directory_id, broker.logs.futures
            path = next(p for p in folders if futures.directory(p).directory_id != own)
            creation = futures.plan(key, path)
            creation.run()
            future = futures.add(creation)
            assert future is not None
            assert tell(broker, state()).partitions[0].directory_id == own
            futures.told[key] = future.directory_id
            assert tell(broker, state()).partitions[0].directory_id == future.directory_id != own
            futures.drop(key)
            assert tell(broker, state()).partitions[0].directory_id == own

    asyncio.run(story())
