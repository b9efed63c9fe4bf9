"""Results per partition of one request, and when they are answered."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from headwater.client.connection import Connection, open_connection
from headwater.errors import ErrorCode
from headwater.wire.apis.k00_produce import ProduceRequest, ProduceResponse, TopicProduceData
from headwater.wire.apis.k01_fetch import FetchRequest, FetchResponse
from headwater.wire.apis.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from solo_broker import SoloBroker
from unit.network.test_data_plane import (
    batch,
    fetch,
    fetch_request,
    produce,
    produce_request,
    serve,
)


def test_the_end_of_an_older_segment_does_not_wait_for_min_bytes(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        size = len(batch(1, 500))
        broker.create_topic("t", configs={"segment.bytes": str(2 * size)})
        for _ in range(3):
            await produce(c, "t", batch(1, 500))
        read = await fetch(c, "t", 1, max_wait_ms=2**31 - 1, min_bytes=2 * size)
        assert len(read.records or b"") == size, "one segment's batches, at once"

    serve(tmp_path, scenario)


@pytest.mark.parametrize("max_bytes", [2, 1.5, 0.5])
def test_min_bytes_asks_for_no_more_than_max_bytes_allows(tmp_path: Path, max_bytes: float) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        size = len(batch(1, 500))
        broker.create_topic("t")
        for _ in range(3):
            await produce(c, "t", batch(1, 500))
        bounds = {"min_bytes": 9 * size, "max_bytes": int(max_bytes * size)}
        asked = fetch(c, "t", 0, max_wait_ms=2**31 - 1, **bounds)
        read = await asyncio.wait_for(asked, 5)
        assert len(read.records or b"") == max(int(max_bytes), 1) * size

    serve(tmp_path, scenario)


def test_min_bytes_asks_for_no_more_than_the_broker_gives(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        size = len(batch(1, 500))
        broker.create_topic("t")
        for _ in range(3):
            await produce(c, "t", batch(1, 500))
        asked = fetch(c, "t", 0, max_wait_ms=2**31 - 1, min_bytes=9 * size)
        assert len((await asyncio.wait_for(asked, 5)).records or b"") == size

    serve(tmp_path, scenario, fetch_max_bytes="1024")


def test_a_parked_fetch_answers_with_what_there_is_at_its_deadline(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t")
        other = await open_connection("127.0.0.1", broker.port)
        parked = asyncio.create_task(fetch(c, "t", 0, max_wait_ms=300, min_bytes=1 << 20))
        while not broker.services.purgatories.fetch.parked:
            await asyncio.sleep(0.001)
        await produce(other, "t", batch())
        read = await parked
        assert (read.error_code, read.high_watermark) == (0, 1)
        assert len(read.records or b"") == len(batch()), "appended after it was read first"
        other.close()

    serve(tmp_path, scenario)


def test_a_time_out_names_only_the_partitions_that_wait(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("waits", replicas=(1, 2))
        broker.create_topic("alone")
        topics = tuple(
            produce_request(name, batch()).topic_data[0] for name in ("waits", "alone", "nope")
        )

        async def codes(*wanted: TopicProduceData, timeout_ms: int) -> dict[str, int]:
            request = ProduceRequest(acks=-1, timeout_ms=timeout_ms, topic_data=wanted)
            reply = await c.call(request, ProduceResponse, version=9)
            return {t.name: t.partition_responses[0].error_code for t in reply.responses}

        unknown = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        told = await codes(*topics, timeout_ms=30)
        assert told == {"waits": ErrorCode.REQUEST_TIMED_OUT, "alone": 0, "nope": unknown}
        assert await codes(topics[2], timeout_ms=2**31 - 1) == {"nope": unknown}, "at once"

    serve(tmp_path, scenario)


def test_a_new_leader_finds_times_below_its_high_watermark(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        async def ask(timestamp: int) -> tuple[int, int]:
            part = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
            request = ListOffsetsRequest(
                replica_id=-1, topics=(ListOffsetsTopic(name="t", partitions=(part,)),)
            )
            reply = await c.call(request, ListOffsetsResponse, version=9)
            row = reply.topics[0].partitions[0]
            return row.error_code, row.offset

        first = 1_795_000_000_000
        broker.create_topic("t")
        await produce(c, "t", batch(10, at=first))
        broker.create_topic("t", replicas=(1, 2), epoch=1)
        await produce(c, "t", batch(10, at=first + 10))
        broker.create_topic("t", replicas=(1, 2), epoch=2)
        assert await ask(-1) == (ErrorCode.OFFSET_NOT_AVAILABLE, -1), "or this shows nothing"
        assert await ask(first + 5) == (0, 5)
        assert await ask(first + 15) == (ErrorCode.OFFSET_NOT_AVAILABLE, -1), "perhaps committed"
        assert await ask(first + 99) == (ErrorCode.OFFSET_NOT_AVAILABLE, -1)
        assert await ask(-3) == (ErrorCode.OFFSET_NOT_AVAILABLE, -1)

    serve(tmp_path, scenario)


def test_latest_is_the_bound_of_who_asks(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        async def latest(topic: str, replica: int = -1) -> tuple[int, int]:
            part = ListOffsetsPartition(partition_index=0, timestamp=-1)
            rows = tuple(ListOffsetsTopic(name=n, partitions=(part,)) for n in (topic, "alone"))
            request = ListOffsetsRequest(replica_id=replica, topics=rows)
            first, other = (await c.call(request, ListOffsetsResponse, version=9)).topics
            assert other.partitions[0].error_code == 0, "an error is its partition's alone"
            return first.partitions[0].error_code, first.partitions[0].offset

        broker.create_topic("alone")
        broker.create_topic("t", replicas=(1, 2))
        await produce(c, "t", batch())
        assert await latest("t") == (0, 0)
        assert await latest("t", replica=2) == (0, 1)
        assert await latest("nope") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
        broker.create_topic("t", replicas=(1, 2), epoch=1)
        assert await latest("t") == (ErrorCode.OFFSET_NOT_AVAILABLE, -1), "0 may be too old"
        broker.create_topic("t", replicas=(1, 2), leader=2, epoch=2)
        assert await latest("t") == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
        assert await latest("t", replica=-2) == (0, 0), "a debugging reader may ask any replica"

    serve(tmp_path, scenario)


def test_an_error_of_one_partition_is_told_at_once_beside_the_others(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t")
        await produce(c, "t", batch())
        topics = tuple(fetch_request(name, 0).topics[0] for name in ("t", "nope"))
        request = FetchRequest(max_wait_ms=2**31 - 1, min_bytes=1 << 20, topics=topics)
        good, bad = (await c.call(request, FetchResponse, version=11)).responses
        assert len(good.partitions[0].records or b"") == len(batch())
        told = (bad.partitions[0].error_code, bad.partitions[0].high_watermark)
        assert told == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
        assert not bad.partitions[0].records

    serve(tmp_path, scenario)
