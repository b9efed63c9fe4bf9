"""OFFSET_OUT_OF_RANGE is answered only by a broker that has confirmed its leadership."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from headwater.client.connection import Connection, open_connection
from headwater.errors import ErrorCode
from headwater.wire.apis.k01_fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from solo_broker import SoloBroker
from unit.network.test_data_plane import batch, fetch, produce, serve


def test_a_leader_tells_it(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        topic_id = broker.create_topic("t")
        await produce(c, "t", batch(3))
        for version in (4, 11, 17):
            key = {"topic_id": topic_id} if version >= 13 else {}
            read = await fetch(c, "" if key else "t", 4, version=version, **key)
            assert read.error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    serve(tmp_path, scenario)


@pytest.mark.parametrize("max_wait_ms", [0, 5_000])
def test_a_deposed_leader_sends_the_consumer_elsewhere(tmp_path: Path, max_wait_ms: int) -> None:
    """What a group has committed after its successor's records is not lost: it is not here."""

    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t")
        await produce(c, "t", batch(3))
        broker.is_deposed = True
        read = await fetch(c, "t", 4, max_wait_ms=max_wait_ms)
        assert read.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (read.high_watermark, bytes(read.records or b"")) == (-1, b"")
        assert not (await fetch(c, "t", 0)).error_code, "what is there is read as ever"

    serve(tmp_path, scenario)


def test_what_lies_before_the_start_is_told_without_asking(tmp_path: Path) -> None:
    """A start never goes back: it is true of the successor, too."""

    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t")
        await produce(c, "t", batch(3))
        broker.replicas.partitions["t", 0].log.delete_records_before(2)
        broker.store_answers.clear()
        read = await asyncio.wait_for(fetch(c, "t", 1), 10)
        assert read.error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    serve(tmp_path, scenario)


@pytest.mark.parametrize("is_deposed", [False, True])
def test_other_partitions_of_the_request_are_read_once_it_is_known(
    tmp_path: Path, is_deposed: bool
) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        for topic in "ab":
            broker.create_topic(topic)
            await produce(c, topic, batch(3))
        broker.is_deposed = is_deposed
        broker.store_answers.clear()
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=1 << 20,
            topics=tuple(
                FetchTopic(
                    topic=topic,
                    partitions=(
                        FetchPartition(partition=0, fetch_offset=at, partition_max_bytes=1 << 20),
                    ),
                )
                for topic, at in (("a", 9), ("b", 0))
            ),
        )
        asked = asyncio.create_task(c.call(request, FetchResponse, version=11))
        await asyncio.sleep(0.05)
        assert not asked.done(), "the store has not answered"
        other = await open_connection("127.0.0.1", broker.port)
        await produce(other, "b", batch(3))
        broker.store_answers.set()
        far, near = [topic.partitions[0] for topic in (await asked).responses]
        wanted = ErrorCode.NOT_LEADER_OR_FOLLOWER if is_deposed else ErrorCode.OFFSET_OUT_OF_RANGE
        assert (far.error_code, near.error_code, near.high_watermark) == (wanted, 0, 6)
        assert near.records
        other.close()

    serve(tmp_path, scenario)
