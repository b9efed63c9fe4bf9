"""OffsetCommit and OffsetFetch over the wire: outcomes per partition."""

from __future__ import annotations

import asyncio
from pathlib import Path

from headwater.client.connection import Connection, open_connection
from headwater.errors import ErrorCode
from headwater.topic_names import OFFSETS_TOPIC
from headwater.wire.apis.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from headwater.wire.apis.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from headwater.wire.apis.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from solo_broker import SoloBroker
from unit.network.test_data_plane import Scenario

Codes = dict[tuple[str, int], int]
METADATA_MAX = 10


def serve(folder: Path, scenario: Scenario) -> None:
    async def run() -> None:
        limit = str(METADATA_MAX)
        async with SoloBroker(folder, offset_metadata_max_bytes=limit) as broker:
            broker.create_topic(OFFSETS_TOPIC, 1)
            broker.create_topic("t", 2)
            connection = await open_connection("127.0.0.1", broker.port)
            await asyncio.wait_for(scenario(broker, connection), 30)
            connection.close()

    asyncio.run(run())


async def commit(
    c: Connection, *rows: tuple[str, int, int, str], version: int = 8, generation: int = -1
) -> Codes:
    topics = tuple(
        OffsetCommitRequestTopic(
            name=topic,
            partitions=(
                OffsetCommitRequestPartition(
                    partition_index=partition, committed_offset=offset, committed_metadata=metadata
                ),
            ),
        )
        for topic, partition, offset, metadata in rows
    )
    request = OffsetCommitRequest(
        group_id="g", generation_id_or_member_epoch=generation, topics=topics
    )
    reply = await c.call(request, OffsetCommitResponse, version=version)
    return {(t.name, p.partition_index): p.error_code for t in reply.topics for p in t.partitions}


async def fetched(
    c: Connection, *partitions: int, wants_all: bool = False
) -> dict[int, tuple[int, str | None, int]]:
    named = (OffsetFetchRequestTopic(name="t", partition_indexes=partitions),)
    topics = None if wants_all else named
    request = OffsetFetchRequest(group_id="g", topics=topics)
    reply = await c.call(request, OffsetFetchResponse, version=5)
    return {
        p.partition_index: (p.committed_offset, p.metadata, p.error_code)
        for t in reply.topics
        for p in t.partitions
    }


def test_what_cannot_be_committed_is_told_and_the_rest_commits(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        long = "x" * (METADATA_MAX + 1)
        told = await commit(c, ("t", 0, 7, "note"), ("nope", 0, 1, ""), ("t", 1, 2, long))
        assert told == {
            ("t", 0): 0,
            ("nope", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("t", 1): ErrorCode.OFFSET_METADATA_TOO_LARGE,
        }
        assert await fetched(c, 0, 1) == {0: (7, "note", 0), 1: (-1, "", 0)}, "no error for none"
        assert await fetched(c, wants_all=True) == {0: (7, "note", 0)}
        request = OffsetFetchRequest(group_id="g", topics=())
        reply = await c.call(request, OffsetFetchResponse, version=5)
        assert (reply.error_code, reply.topics) == (0, ()), "no partition is not all of them"

    serve(tmp_path, scenario)


def test_a_member_of_a_group_that_is_not_known_is_told_so_since_version_9(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        row = ("t", 0, 7, "")
        told = [await commit(c, row, version=v, generation=3) for v in (8, 9)]
        codes = [ErrorCode.ILLEGAL_GENERATION, ErrorCode.GROUP_ID_NOT_FOUND]
        assert told == [{("t", 0): code} for code in codes]

    serve(tmp_path, scenario)


def test_offsets_of_what_does_not_exist_are_not_deleted(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        assert await commit(c, ("t", 0, 7, ""), ("t", 1, 8, "")) == {("t", 0): 0, ("t", 1): 0}
        rows = tuple(
            OffsetDeleteRequestTopic(
                name=name, partitions=(OffsetDeleteRequestPartition(partition_index=index),)
            )
            for name, index in (("t", 0), ("t", 2), ("nope", 0))
        )
        request = OffsetDeleteRequest(group_id="g", topics=rows)
        reply = await c.call(request, OffsetDeleteResponse)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        codes = [(t.name, p.error_code) for t in reply.topics for p in t.partitions]
        assert (reply.error_code, codes) == (0, [("t", 0), ("t", unknown), ("nope", unknown)])
        assert await fetched(c, wants_all=True) == {1: (8, "", 0)}

    serve(tmp_path, scenario)


def test_only_the_leader_of_the_groups_partition_answers(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        assert await commit(c, ("t", 0, 7, "")) == {("t", 0): 0}
        broker.create_topic(OFFSETS_TOPIC, 1, replicas=(1, 2), leader=2, epoch=1)
        refused = ErrorCode.NOT_COORDINATOR
        assert await commit(c, ("t", 0, 8, "")) == {("t", 0): refused}
        request = OffsetFetchRequest(group_id="g", topics=None)
        reply = await c.call(request, OffsetFetchResponse, version=5)
        assert (reply.error_code, reply.topics) == (refused, ())
        broker.create_topic(OFFSETS_TOPIC, 1, replicas=(1,), leader=1, epoch=2)
        assert (await fetched(c, 0))[0][0] == 7, "loaded from its log again"

    serve(tmp_path, scenario)
