"""A follower's out-of-range recovery that a later control request overtakes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import pytest

from headwater.records.builder import build_batch
from headwater.wire.apis.k02_list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from headwater.wire.control import (
    LeaderAndIsrRequest,
    PartitionState,
    ReplicaStateReply,
    StopReplicaPartition,
    StopReplicaRequest,
)
from headwater.wire.schema import encode
from headwater_broker.replica.follower import Reaction
from headwater_broker.replica.out_of_range_recovery import LIST_OFFSETS_VERSION, OutOfRangeRecovery
from solo_broker import BROKER_EPOCH, SoloBroker

FORMER, LATTER = UUID(int=1), UUID(int=2)
BEGINS_AT = 50
"""The leader's log, at both ends."""


def host(broker: SoloBroker, topic_id: UUID, leader_id: int) -> None:
    state = PartitionState(
        topic="t", topic_id=topic_id, partition=0, leader_id=leader_id, leader_epoch=1,
        partition_epoch=1, isr=(1, 2), replicas=(1, 2), is_new=True,
    )  # fmt: skip
    broker.replicas.apply_leader_and_isr(
        LeaderAndIsrRequest(
            controller_id=1, controller_epoch=5, broker_epoch=BROKER_EPOCH, partitions=(state,)
        )
    )


def stop(broker: SoloBroker, *, delete: bool) -> None:
    row = StopReplicaPartition(
        topic="t", topic_id=FORMER, partition=0, leader_epoch=-1, delete=delete
    )
    broker.replicas.stop_replica(
        StopReplicaRequest(
            controller_id=1, controller_epoch=5, broker_epoch=BROKER_EPOCH, partitions=(row,)
        )
    )


def deleted(broker: SoloBroker) -> None:
    stop(broker, delete=True)


def made_anew(broker: SoloBroker) -> None:
    stop(broker, delete=True)
    host(broker, LATTER, leader_id=1)
    data = memoryview(bytearray(build_batch([(1, None, b"kept", ())])))
    broker.replicas.lookup("t", 0).append(data, 1, 0)


class Leader:
    """Its data plane and its control plane; something happens before it answers."""

    def __init__(self, state: bytes, before_answer: Callable[[], None]) -> None:
        self._state = state
        self._before_answer = before_answer

    async def request(self, body: bytes) -> memoryview:
        row = ListOffsetsPartitionResponse(partition_index=0, offset=BEGINS_AT)
        topic = ListOffsetsTopicResponse(name="t", partitions=(row,))
        reply = encode(ListOffsetsResponse(topics=(topic,)), LIST_OFFSETS_VERSION)
        self._answering()
        return memoryview(bytes(5) + bytes(reply))

    async def call(self, *_: Any) -> ReplicaStateReply:
        self._answering()
        return ReplicaStateReply(producer_snapshot=self._state, epoch_checkpoint=b"0\n0\n")

    def _answering(self) -> None:
        happens, self._before_answer = self._before_answer, lambda: None
        happens()


@pytest.mark.parametrize("what", [Reaction.FIND_RANGE, Reaction.START_AT_LOCAL])
@pytest.mark.parametrize("happens", [deleted, made_anew])
def test_a_topic_deleted_meanwhile_harms_neither_the_disk_nor_its_successor(
    tmp_path: Path, what: Reaction, happens: Callable[[SoloBroker], None]
) -> None:
    async def run() -> None:
        async with SoloBroker(tmp_path) as broker:
            host(broker, FORMER, leader_id=2)
            follower = broker.replicas.lookup("t", 0)
            leader = cast(Any, Leader(b"", lambda: happens(broker)))
            recovery = OutOfRangeRecovery(1, leader, lambda _broker_id: "leader:1")
            await recovery.run(follower, leader, what, 2)
            assert (tmp_path / "t-0").exists() is (happens is made_anew)
            if happens is made_anew:
                successor = broker.replicas.lookup("t", 0)
                assert (successor.topic_id, successor.is_leader) == (LATTER, True)
                [segment] = successor.log.segments
                assert Path(segment.file.path).stat().st_size > 0

    asyncio.run(run())


@pytest.mark.parametrize("what", [Reaction.FIND_RANGE, Reaction.START_AT_LOCAL])
def test_without_it_the_log_begins_where_the_leaders_does(tmp_path: Path, what: Reaction) -> None:
    async def run() -> None:
        async with SoloBroker(tmp_path) as broker:
            host(broker, FORMER, leader_id=2)
            follower = broker.replicas.lookup("t", 0)
            state = follower.log.producer_snapshot_bytes(0)
            leader = cast(Any, Leader(bytes(state), lambda: None))
            await OutOfRangeRecovery(1, leader, lambda _broker_id: "leader:1").run(
                follower, leader, what, 2
            )
            assert follower.log.log_end_offset == BEGINS_AT

    asyncio.run(run())
