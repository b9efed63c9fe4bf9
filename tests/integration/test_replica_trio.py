"""Three real logs, listeners and fetch loops in one process: elections, truncation, catching up."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from headwater.client.connection import Connection, open_connection
from headwater.errors import ErrorCode
from headwater.records.builder import build_batch
from headwater.system import SystemClock
from headwater.wire.apis.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from headwater_broker.replica.replication_config import ReplicationConfig
from replica_trio import BROKERS, Trio

pytestmark = pytest.mark.integration

LATENCY_P50_MS = 5.0
"""Far above what it takes (0.3 ms): a parked follower fetch that is not woken costs 500."""


def run(folder: Path, story: Callable[[Trio], Awaitable[None]], **limits: int) -> None:
    async def main() -> None:
        async with Trio(folder, ReplicationConfig(**limits)) as trio:
            await asyncio.wait_for(story(trio), 60)

    asyncio.run(main())


async def until(holds: Callable[[], bool], what: str) -> None:
    for _ in range(2000):
        if holds():
            return
        await asyncio.sleep(0.005)
    raise AssertionError(f"never: {what}")


def batch(value: bytes, count: int = 1) -> bytes:
    return bytes(build_batch([(SystemClock().now_ms(), None, value, ())] * count))


async def produce(
    to: Connection, topic_id: UUID, value: bytes, acks: int = -1, count: int = 1
) -> ErrorCode:
    rows = (PartitionProduceData(index=0, records=batch(value, count)),)
    request = ProduceRequest(
        acks=acks,
        timeout_ms=10_000,
        topic_data=(TopicProduceData(topic_id=topic_id, partition_data=rows),),
    )
    reply = await to.call(request, ProduceResponse)
    return ErrorCode(reply.responses[0].partition_responses[0].error_code)


def contents(trio: Trio, broker_id: int, topic: str) -> bytes:
    log = trio.partition(broker_id, topic).log
    found = b""
    offset = log.local_log_start_offset
    while offset < log.log_end_offset:
        piece = log.read(offset, 1 << 20, log.log_end_offset, min_one=True)
        data = piece.file.read_at(piece.position, piece.size_bytes)
        found += data
        from headwater.records.batch import iter_headers

        offset = list(iter_headers(data))[-1][1].next_offset
    return found


def same(trio: Trio, topic: str, brokers: tuple[int, ...] = BROKERS) -> Callable[[], bool]:
    return lambda: (
        len({trio.partition(b, topic).log.log_end_offset for b in brokers}) == 1
        and len({contents(trio, b, topic) for b in brokers}) == 1
    )


def test_acks_all_takes_about_one_round_of_the_followers(tmp_path: Path) -> None:
    async def story(trio: Trio) -> None:
        topic_id = trio.create("t")
        to = await open_connection("127.0.0.1", trio.brokers[1].port)
        clock, times = SystemClock(), []
        for n in range(300):
            began = clock.monotonic()
            assert await produce(to, topic_id, str(n).encode()) is ErrorCode.NONE
            times.append((clock.monotonic() - began) * 1000)
        print(f"acks=all, 3 replicas: p50 {statistics.median(times):.2f} ms")
        assert statistics.median(times) < LATENCY_P50_MS
        await until(same(trio, "t"), "the same logs")
        to.close()

    run(tmp_path, story)


def test_a_failed_over_partition_is_written_at_once(tmp_path: Path) -> None:
    """The followers' fetches to the new leader do not wait for those that are parked."""

    async def story(trio: Trio) -> None:
        topic_id, other = trio.create("t"), trio.create("other", 3)
        to = [await open_connection("127.0.0.1", trio.brokers[b].port) for b in BROKERS]
        assert await produce(to[0], topic_id, b"a") is ErrorCode.NONE
        assert other
        for n, leader in enumerate((2, 3, 1, 2)):
            await asyncio.sleep(0.05)
            trio.elect(topic_id, leader)
            began = SystemClock().monotonic()
            assert await produce(to[leader - 1], topic_id, str(n).encode()) is ErrorCode.NONE
            assert SystemClock().monotonic() - began < 0.2
        await until(same(trio, "t"), "the same logs")
        for connection in to:
            connection.close()

    run(tmp_path, story)


def test_the_suffix_of_a_deposed_leader_is_cut(tmp_path: Path) -> None:
    async def story(trio: Trio) -> None:
        topic_id = trio.create("t")
        first, second = [
            await open_connection("127.0.0.1", trio.brokers[b].port) for b in BROKERS[:2]
        ]
        assert await produce(first, topic_id, b"kept") is ErrorCode.NONE
        trio.elect(topic_id, 2, (2, 3), only=(2, 3))
        for n in range(5):
            assert await produce(first, topic_id, b"lost %d" % n, acks=1) is ErrorCode.NONE
        stuck = asyncio.ensure_future(produce(first, topic_id, b"lost too"))
        assert await produce(second, topic_id, b"new") is ErrorCode.NONE
        assert not stuck.done()
        trio.tell([trio.states[topic_id, 0]])
        assert await stuck is ErrorCode.NOT_LEADER_OR_FOLLOWER
        await until(same(trio, "t"), "the same logs")
        assert b"lost" not in contents(trio, 1, "t")
        assert trio.partition(1, "t").log.log_end_offset == 2
        await until(lambda: set(trio.states[topic_id, 0].isr) == {1, 2, 3}, "back in the ISR")
        first.close()
        second.close()

    run(tmp_path, story)


def test_a_restarted_follower_catches_up_and_joins_again(tmp_path: Path) -> None:
    async def story(trio: Trio) -> None:
        topic_id = trio.create("t")
        to = await open_connection("127.0.0.1", trio.brokers[1].port)
        await produce(to, topic_id, b"a")
        await trio.stop(3)
        state = trio.states[topic_id, 0]
        trio.tell([replace(state, isr=(1, 2), partition_epoch=state.partition_epoch + 1)])
        for n in range(100):
            assert await produce(to, topic_id, b"%d" % n * 100) is ErrorCode.NONE
        await trio.start(3)
        await until(lambda: 3 in trio.states[topic_id, 0].isr, "back in the ISR")
        await until(same(trio, "t"), "the same logs")
        assert trio.brokers[2].gone == []
        to.close()

    run(tmp_path, story)


def test_the_isr_shrinks_to_who_is_there(tmp_path: Path) -> None:
    async def story(trio: Trio) -> None:
        topic_id = trio.create("t", min_insync_replicas="2")
        to = await open_connection("127.0.0.1", trio.brokers[1].port)
        await produce(to, topic_id, b"a")
        await trio.brokers[3].replicas.close()  # it hangs: alive, but fetches no more
        writing = asyncio.ensure_future(produce(to, topic_id, b"b"))
        await asyncio.sleep(0.5)
        assert not writing.done()
        trio.brokers[1].replicas.isr_tick()
        assert await asyncio.wait_for(writing, 5) is ErrorCode.NONE
        assert trio.states[topic_id, 0].isr == (1, 2)
        to.close()

    run(tmp_path, story, replica_lag_time_max_ms=300)


def test_a_follower_below_the_leaders_start_begins_there(tmp_path: Path) -> None:
    begins_at(tmp_path, start=10, records_per_batch=1)


def test_a_follower_begins_inside_a_batch_where_the_leaders_log_does(tmp_path: Path) -> None:
    begins_at(tmp_path, start=15, records_per_batch=10)


def begins_at(tmp_path: Path, start: int, records_per_batch: int) -> None:
    async def story(trio: Trio) -> None:
        topic_id = trio.create("t")
        to = await open_connection("127.0.0.1", trio.brokers[1].port)
        await trio.stop(3)
        state = trio.states[topic_id, 0]
        trio.tell([replace(state, isr=(1, 2), partition_epoch=1)])
        for n in range(20 // records_per_batch):
            await produce(to, topic_id, b"%d" % n, count=records_per_batch)
        trio.partition(1, "t").log.delete_records_before(start)
        await until(lambda: trio.partition(2, "t").log.log_start_offset == start, "start followed")
        await trio.start(3)
        await until(lambda: 3 in trio.states[topic_id, 0].isr, "back in the ISR")
        log = trio.partition(3, "t").log
        assert (log.log_start_offset, log.log_end_offset) == (start, 20)
        to.close()

    run(tmp_path, story)


def test_a_follower_of_a_tiered_topic_begins_at_the_local_start(tmp_path: Path) -> None:
    async def story(trio: Trio) -> None:
        topic_id = trio.create(
            "t", remote_storage_enable="true", segment_bytes="2000", local_retention_bytes="1"
        )
        to = await open_connection("127.0.0.1", trio.brokers[1].port)
        await produce(to, topic_id, b"a")
        await trio.stop(3)
        state = trio.states[topic_id, 0]
        trio.tell([replace(state, isr=(1, 2), partition_epoch=1)])
        for _ in range(60):
            await produce(to, topic_id, b"x" * 100)
        log = trio.partition(1, "t").log
        log.retain(SystemClock().now_ms(), 50, high_watermark=60)
        assert log.log_start_offset == 0 < log.local_log_start_offset <= 50
        await trio.start(3)
        await until(lambda: 3 in trio.states[topic_id, 0].isr, "back in the ISR")
        mine = trio.partition(3, "t").log
        assert mine.local_log_start_offset == log.local_log_start_offset
        assert (mine.log_start_offset, mine.log_end_offset) == (0, 61)
        assert mine.end_offset_for_epoch(0) == (0, 61)
        assert await produce(to, topic_id, b"y") is ErrorCode.NONE
        to.close()

    run(tmp_path, story)
