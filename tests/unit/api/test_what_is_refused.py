"""What a broker refuses, and with which code: as Kafka does, since clients act on it."""

from __future__ import annotations

from pathlib import Path

from headwater.client.connection import Connection
from headwater.errors import ErrorCode
from headwater.wire.apis.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
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
from headwater.wire.apis.k61_describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
)
from headwater.wire.apis.k61_describe_producers import TopicRequest as ProducersTopic
from solo_broker import SoloBroker
from unit.server.test_data_plane import serve

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
