"""End offsets of partitions led by other brokers: asked of each leader, kept while it is away."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from headwater.errors import ErrorCode
from headwater.wire.apis.k02_list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from headwater.wire.control import BrokerEndpoint, LiveBroker, PartitionState
from headwater.wire.headers import ResponseHeader
from headwater.wire.schema import decode, encode
from headwater_broker.metadata.cache import MetadataCache
from headwater_broker.telemetry.leader_end_offsets import (
    PARTITIONS_PER_REQUEST,
    VERSION,
    LeaderEndOffsets,
)

LISTENER = "INTERNAL"


class Cluster:
    """Leaders 1 and 2, whose ports are their ids; `ends` are their partitions' end offsets."""

    def __init__(self, leaders: dict[tuple[str, int], int]) -> None:
        self.leaders = leaders
        self.ends: dict[tuple[str, int], int] = dict.fromkeys(leaders, 10)
        self.away: set[int] = set()
        self.requests: list[int] = []
        """Partitions per request."""
        self.open = 0
        self.brokers = {
            broker: LiveBroker(
                broker_id=broker,
                endpoints=(
                    BrokerEndpoint(listener="EXTERNAL", host="other", port=9),
                    BrokerEndpoint(listener=LISTENER, host="h", port=broker),
                ),
            )
            for broker in (1, 2)
        }

    def partition(self, topic: str, partition: int) -> PartitionState | None:
        leader = self.leaders.get((topic, partition))
        if leader is None:
            return None
        return PartitionState(topic=topic, partition=partition, leader_id=leader)

    async def connect(self, host: str, port: int) -> Leader:
        assert host == "h"
        if port in self.away:
            raise ConnectionRefusedError(port)
        self.open += 1
        return Leader(self, port)

    def end_offsets(self) -> LeaderEndOffsets:
        return LeaderEndOffsets(cast(MetadataCache, self), cast(Any, self.connect), LISTENER)


class Leader:
    """A connection to one leader."""

    def __init__(self, cluster: Cluster, broker_id: int) -> None:
        self.cluster = cluster
        self.broker_id = broker_id

    async def request(self, body: bytes) -> memoryview:
        asked = decode(ListOffsetsRequest, VERSION, memoryview(body)[11:])
        assert asked.replica_id == -1
        self.cluster.requests.append(sum(len(t.partitions) for t in asked.topics))
        topics = tuple(
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=tuple(
                    self.answer(topic.name, row.partition_index) for row in topic.partitions
                ),
            )
            for topic in asked.topics
        )
        header = encode(ResponseHeader(correlation_id=0), 1)
        return memoryview(header + encode(ListOffsetsResponse(topics=topics), VERSION))

    def answer(self, topic: str, partition: int) -> ListOffsetsPartitionResponse:
        key = topic, partition
        if self.cluster.leaders[key] != self.broker_id or key not in self.cluster.ends:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            return ListOffsetsPartitionResponse(partition_index=partition, error_code=code)
        return ListOffsetsPartitionResponse(
            partition_index=partition, error_code=0, offset=self.cluster.ends[key]
        )

    def close(self) -> None:
        self.cluster.open -= 1


A, B, C = ("a", 0), ("a", 1), ("b", 0)


def test_each_leader_is_asked_once_for_all_of_its_partitions() -> None:
    cluster = Cluster({A: 1, B: 2, C: 1})
    cluster.ends = {A: 5, B: 6, C: 7}
    ends = cluster.end_offsets()
    assert ends.get(*A) is None
    asyncio.run(ends.refresh([A, B, C, A, ("unknown", 0)]))
    assert [ends.get(*key) for key in (A, B, C)] == [5, 6, 7]
    assert sorted(cluster.requests) == [1, 2]
    assert cluster.open == 0


def test_a_leader_that_is_away_leaves_what_was_known() -> None:
    cluster = Cluster({A: 1, B: 2})
    ends = cluster.end_offsets()
    asyncio.run(ends.refresh([A, B]))
    cluster.ends = {A: 20, B: 30}
    cluster.away = {1}
    asyncio.run(ends.refresh([A, B]))
    assert (ends.get(*A), ends.get(*B)) == (10, 30)
    del cluster.ends[B]
    asyncio.run(ends.refresh([A, B]))
    assert (ends.get(*A), ends.get(*B)) == (10, 30), "an error in a reply is no end offset"
    cluster.brokers = {}
    asyncio.run(ends.refresh([A]))
    assert (ends.get(*A), ends.get(*B)) == (10, None), "what nobody asks for is forgotten"


def test_a_leader_without_the_listener_is_passed_over() -> None:
    cluster = Cluster({A: 1})
    cluster.brokers = {1: LiveBroker(broker_id=1)}
    ends = cluster.end_offsets()
    asyncio.run(ends.refresh([A]))
    assert ends.get(*A) is None


def test_a_leader_that_hangs_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster({A: 1, B: 2})
    ends = LeaderEndOffsets(
        cast(MetadataCache, cluster), cast(Any, cluster.connect), LISTENER, timeout_s=0.01
    )
    request = Leader.request

    async def hang(self: Leader, body: bytes) -> memoryview:
        if self.broker_id == 1:
            await asyncio.Event().wait()
        return await request(self, body)

    monkeypatch.setattr(Leader, "request", hang)
    asyncio.run(ends.refresh([A, B]))
    assert (ends.get(*A), ends.get(*B)) == (None, 10)
    assert cluster.open == 0


def test_many_partitions_are_asked_for_in_several_requests() -> None:
    count = 2 * PARTITIONS_PER_REQUEST + 1
    keys = [("t", number) for number in range(count)]
    cluster = Cluster(dict.fromkeys(keys, 1))
    ends = cluster.end_offsets()
    asyncio.run(ends.refresh(keys))
    assert sorted(cluster.requests) == [1, PARTITIONS_PER_REQUEST, PARTITIONS_PER_REQUEST]
    assert all(ends.get(*key) == 10 for key in keys)
