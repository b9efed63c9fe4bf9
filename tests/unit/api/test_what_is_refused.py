"""Refused requests: the error codes are Kafka's, as clients act on them."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.client.connection import Connection
from headwater.errors import ErrorCode
from headwater.ports.authorizer import Operation, ResourceType
from headwater.wire.apis.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from headwater.wire.apis.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from headwater.wire.apis.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from headwater.wire.apis.k23_offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from headwater.wire.apis.k60_describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from headwater.wire.apis.k61_describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
)
from headwater.wire.apis.k61_describe_producers import TopicRequest as ProducersTopic
from solo_broker import SoloBroker
from unit.api.test_describing import Denies
from unit.network.test_data_plane import serve

ELSEWHERE, NOWHERE = ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
NAMES = ("here", "moved", "none")


async def offsets(c: Connection, *topics: str) -> list[int]:
    row = ListOffsetsPartition(partition_index=0, timestamp=-1)
    asked = tuple(ListOffsetsTopic(name=t, partitions=(row,)) for t in topics)
    reply = await c.call(ListOffsetsRequest(replica_id=-1, topics=asked), ListOffsetsResponse)
    return [p.error_code for t in reply.topics for p in t.partitions]


async def epoch_ends(c: Connection, *topics: str) -> list[int]:
    row = OffsetForLeaderPartition(partition=0, leader_epoch=0)
    asked = tuple(OffsetForLeaderTopic(topic=t, partitions=(row,)) for t in topics)
    reply = await c.call(OffsetForLeaderEpochRequest(topics=asked), OffsetForLeaderEpochResponse)
    return [p.error_code for t in reply.topics for p in t.partitions]


async def deletions(c: Connection, *topics: str) -> list[int]:
    row = DeleteRecordsPartition(partition_index=0, offset=-1)
    asked = tuple(DeleteRecordsTopic(name=t, partitions=(row,)) for t in topics)
    request = DeleteRecordsRequest(topics=asked, timeout_ms=10_000)
    reply = await c.call(request, DeleteRecordsResponse)
    return [p.error_code for t in reply.topics for p in t.partitions]


async def producers(c: Connection, *topics: str) -> list[int]:
    asked = tuple(ProducersTopic(name=t, partition_indexes=(0,)) for t in topics)
    reply = await c.call(DescribeProducersRequest(topics=asked), DescribeProducersResponse)
    return [p.error_code for t in reply.topics for p in t.partitions]


def test_a_partition_that_others_host_is_looked_for_anew(tmp_path: Path) -> None:
    """UNKNOWN_TOPIC_OR_PARTITION would be told to the user of many a client as the end."""

    async def story(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("here")
        broker.create_topic("moved")
        assert await epoch_ends(c, "here") == [0]
        broker.move_away("moved")
        for ask in (offsets, epoch_ends, deletions, producers):
            assert await ask(c, *NAMES) == [0, ELSEWHERE, NOWHERE], ask.__name__

    serve(tmp_path, story, racks={1: "a", 2: "b"})


def test_offsets_of_a_partition_named_twice_are_told_for_neither(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t", 2)
        rows = tuple(
            ListOffsetsPartition(partition_index=p, timestamp=t)
            for p, t in [(0, -1), (1, -1), (0, -2)]
        )
        asked = (
            ListOffsetsTopic(name="t", partitions=rows),
            ListOffsetsTopic(name="u", partitions=rows[:1]),
            ListOffsetsTopic(name="u", partitions=rows[:1]),
        )
        reply = await c.call(ListOffsetsRequest(replica_id=-1, topics=asked), ListOffsetsResponse)
        codes = [[p.error_code for p in t.partitions] for t in reply.topics]
        twice = ErrorCode.INVALID_REQUEST
        assert codes == [[twice, 0, twice], [twice], [twice]]

    serve(tmp_path, story)


def test_who_may_not_see_a_topic_is_told_so_also_when_it_is_named_twice(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        assert await offsets(c, "t", "t") == [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * 2

    serve(tmp_path, story, authorizer=Denies(Operation.DESCRIBE, ResourceType.TOPIC))


def test_endpoints_of_controllers_are_asked_for_in_the_wrong_place(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        async def ask(kind: int) -> int:
            request = DescribeClusterRequest(endpoint_type=kind)
            return (await c.call(request, DescribeClusterResponse, version=1)).error_code

        assert [await ask(kind) for kind in (1, 2, 3, 0)] == [
            ErrorCode.NONE,
            ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
        ]

    serve(tmp_path, story)


@pytest.mark.parametrize(
    ("name", "version", "is_good"),
    [
        ("librdkafka", "v2.5.0-RC1", True),
        ("a", "1", True),
        ("", "1", False),
        ("a", "", False),
        ("a", "1.0+local", False),
        ("a", "-1", False),
        ("a.", "1", False),
        ("größe", "1", False),
        ("a", "²", False),
        ("a\n", "1", False),
    ],
)
def test_software_names_and_versions_are_plain_ascii(
    tmp_path: Path, name: str, version: str, is_good: bool
) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        request = ApiVersionsRequest(client_software_name=name, client_software_version=version)
        reply = await c.call(request, ApiVersionsResponse, version=3)
        assert reply.error_code == (0 if is_good else ErrorCode.INVALID_REQUEST)
        old = await c.call(request, ApiVersionsResponse, version=2)
        assert old.error_code == 0, "these are not asked"

    serve(tmp_path, story)
