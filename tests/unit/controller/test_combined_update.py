"""LeaderAndIsr and UpdateMetadata in one call: nothing is lost, and old brokers get both calls."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, cast
from uuid import UUID

import pytest

from headwater.errors import ErrorCode
from headwater.wire.control import (
    METADATA_NOT_TAKEN,
    LeaderAndIsrReply,
    LeaderAndIsrRequest,
    LiveBroker,
    PartitionError,
    PartitionState,
    StopReplicaPartition,
    StopReplicaReply,
    StopReplicaRequest,
    TopicState,
    UpdateMetadataReply,
    UpdateMetadataRequest,
)
from headwater.wire.schema import Message, decode, encode
from headwater_broker.controller.broker_channel import (
    BrokerChannel,
    ControllerHeader,
    PendingUpdate,
)
from headwater_broker.controller.events import BrokerUpdate, Event
from headwater_broker.metadata.combined_update import combine, split

T = UUID(int=1)
BROKER = LiveBroker(broker_id=1, broker_epoch=7, control_address="b1")
OFFICE = ControllerHeader(0, 5, "c")
TOPIC = TopicState(topic="t", topic_id=T)


def row(partition: int, leader: int = 1, epoch: int = 0, *, is_new: bool = False) -> PartitionState:
    return PartitionState(
        topic="t", topic_id=T, partition=partition, leader_id=leader, leader_epoch=epoch,
        partition_epoch=epoch, isr=(leader,), replicas=(1, 2), is_new=is_new,
    )  # fmt: skip


def test_a_new_replica_stays_new_in_a_full_update() -> None:
    """Otherwise a broker that lost one folder would refuse to create the replica in another."""
    waiting = PendingUpdate()
    waiting.add(BrokerUpdate(broker_id=1, replicas=(row(0, is_new=True), row(1, is_new=True))))
    waiting.add(BrokerUpdate(broker_id=1, full=True, replicas=(row(0, epoch=1), row(2))))
    assert waiting.replicas == keyed(row(0, epoch=1, is_new=True), row(2))
    sending = PendingUpdate()
    sending.add(BrokerUpdate(broker_id=1, replicas=(row(2, is_new=True),)))
    sending.follow(waiting)
    assert {state.partition: state.is_new for state in sending.replicas.values()} == {
        0: True,
        2: True,
    }


def keyed(*rows: PartitionState) -> dict[tuple[UUID, int], PartitionState]:
    return {(state.topic_id, state.partition): state for state in rows}


def sent(replicas: tuple[PartitionState, ...], metadata: tuple[PartitionState, ...]) -> Any:
    """The metadata that a broker reads from the combined request; None if there is none."""
    along = combine(
        keyed(*replicas),
        keyed(*metadata),
        cluster_id="c",
        full=True,
        topics=(TOPIC,),
        broker_configs=None,
    )
    request = LeaderAndIsrRequest(
        controller_id=0,
        controller_epoch=5,
        broker_epoch=7,
        partitions=replicas,
        live_leaders=(BROKER,),
        metadata=along,
        sequence=3,
    )
    return split(decode(LeaderAndIsrRequest, 0, memoryview(encode(request, 0))))


def test_what_was_joined_is_read_as_the_request_it_stands_for() -> None:
    metadata = (row(0), row(1), row(2, leader=2))
    found = sent((row(0, is_new=True), row(1)), metadata)
    assert found == UpdateMetadataRequest(
        controller_id=0,
        controller_epoch=5,
        broker_epoch=7,
        cluster_id="c",
        full=True,
        brokers=(BROKER,),
        topics=(TOPIC,),
        partitions=metadata,
        sequence=3,
    )


def test_equal_partition_states_are_sent_once() -> None:
    rows = tuple(row(n) for n in range(100))
    along = combine(
        keyed(*rows), keyed(*rows), cluster_id="c", full=True, topics=(), broker_configs=None
    )
    assert along is not None
    assert along.partitions == ()


def test_where_metadata_is_newer_it_counts() -> None:
    newer = replace(row(0, epoch=4), offline_replicas=(2,))
    assert sent((row(0, epoch=3),), (newer,)).partitions[-1] == newer


def test_a_repeated_replica_state_brings_no_old_metadata() -> None:
    assert sent((row(0), row(1)), (row(1),)) is None


def test_no_metadata_came_along() -> None:
    assert split(LeaderAndIsrRequest(partitions=(row(0),))) is None


class Broker:
    """A broker that applies updates; whether it knows combined requests depends on its release."""

    def __init__(self, along: int, refused: ErrorCode = ErrorCode.NONE) -> None:
        self.along = along
        self.refused = refused
        self.asked: list[Message] = []

    async def call(self, _address: str, request: Any, _reply: Any, _timeout_ms: int) -> Any:
        self.asked.append(request)
        if isinstance(request, UpdateMetadataRequest):
            return UpdateMetadataReply()
        if isinstance(request, StopReplicaRequest):
            return StopReplicaReply()
        code, self.refused = self.refused, ErrorCode.NONE
        rows = tuple(
            PartitionError(topic_id=s.topic_id, partition=s.partition, error_code=code)
            for s in request.partitions
        )
        taken = METADATA_NOT_TAKEN if request.metadata is None else self.along
        return LeaderAndIsrReply(partitions=rows, metadata_error_code=taken)

    async def close(self) -> None: ...

    def told(self) -> list[tuple[str, bool]]:
        """The calls, and whether they held metadata."""
        return [(type(r).__name__, getattr(r, "metadata", None) is not None) for r in self.asked]


def tell(broker: Broker, *updates: BrokerUpdate) -> list[Event]:
    """Send the updates one after the other; the events of their replies."""
    events: list[Event] = []

    async def run() -> None:
        channel = BrokerChannel(OFFICE, BROKER, broker, lambda: (BROKER,), events.append)
        for update in updates:
            channel.push(update)
            await channel.delivered()
        await channel.close()

    asyncio.run(run())
    return events


UPDATE = BrokerUpdate(
    broker_id=1, replicas=(row(0),), replica_topics=(TOPIC,), metadata=(row(0),), topics=(TOPIC,)
)
BOTH = ("LeaderAndIsrRequest", True)
REPLICAS = ("LeaderAndIsrRequest", False)
METADATA = ("UpdateMetadataRequest", False)


def test_one_call_tells_replicas_and_metadata() -> None:
    broker = Broker(along=ErrorCode.NONE)
    events = tell(broker, UPDATE, UPDATE)
    assert broker.told() == [BOTH, BOTH]
    assert len(events) == 2


def test_a_broker_of_an_older_release_gets_both_calls_and_no_more_attempts() -> None:
    broker = Broker(along=METADATA_NOT_TAKEN)
    tell(broker, UPDATE, UPDATE)
    assert broker.told() == [BOTH, METADATA, REPLICAS, METADATA]


def test_a_refused_replica_is_sent_again_without_the_applied_metadata() -> None:
    broker = Broker(along=ErrorCode.NONE, refused=ErrorCode.UNKNOWN_SERVER_ERROR)
    tell(broker, UPDATE)
    assert broker.told() == [BOTH, REPLICAS]


@pytest.mark.parametrize("code", [ErrorCode.STALE_CONTROLLER_EPOCH, ErrorCode.STALE_BROKER_EPOCH])
def test_metadata_refused_as_stale_is_sent_again(code: ErrorCode) -> None:
    broker = Broker(along=code)

    async def run() -> bool:
        channel = BrokerChannel(OFFICE, BROKER, broker, lambda: (BROKER,), lambda _event: None)
        channel.push(UPDATE)
        done = channel.delivered()
        await asyncio.sleep(0.01)
        told = done.done()
        await channel.close()
        return told

    assert not asyncio.run(run())


def test_requests_of_an_epoch_are_numbered_over_all_brokers_and_retries() -> None:
    """Also for a broker that registers again in between: its process has seen earlier numbers."""
    header = ControllerHeader(0, 5, "c")
    stop = StopReplicaPartition(topic="t", topic_id=T, partition=9, leader_epoch=-1, delete=True)

    async def run() -> list[int]:
        sequences = []
        for refused in (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NONE):
            broker = Broker(along=METADATA_NOT_TAKEN, refused=refused)
            channel = BrokerChannel(header, BROKER, broker, lambda: (BROKER,), lambda _event: None)
            channel.push(replace(UPDATE, stops=(stop,)))
            await channel.delivered()
            await channel.close()
            sequences += [cast(Any, request).sequence for request in broker.asked]
        return sequences

    assert asyncio.run(run()) == [1, 2, 3, 4, 5, 6, 7]
