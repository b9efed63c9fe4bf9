"""Positions: seeks and assignments while answers to older questions are on their way."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headwater.client import fetcher
from headwater.client.consumer import Consumer
from headwater.client.core.fetching import PartitionFetch
from headwater.client.values import OffsetAndTimestamp, TopicPartition
from headwater.errors import ErrorCode, KafkaError, UsageError
from headwater.records.builder import BatchBuilder
from solo_broker import SoloBroker

TP = TopicPartition("t", 0)
LIMIT_MS = 10_000
TIME_MS = 1_795_000_000_000
LookUp = Callable[..., Awaitable[OffsetAndTimestamp]]


def one_record() -> memoryview:
    builder = BatchBuilder()
    builder.append(TIME_MS, None, b"v")
    return memoryview(bytearray(builder.build()))


def with_consumer(tmp_path: Path, scenario: Callable[[Consumer], None]) -> None:
    def talk(port: int) -> None:
        with Consumer(bootstrap_servers=f"127.0.0.1:{port}") as consumer:
            scenario(consumer)

    async def run() -> None:
        async with SoloBroker(tmp_path) as broker:
            broker.create_topic("t")
            await asyncio.to_thread(talk, broker.port)

    asyncio.run(run())


def test_a_reply_of_an_earlier_assignment_is_dropped(tmp_path: Path) -> None:
    """What it brings lies behind records that were fetched, and dropped with that assignment."""

    async def run() -> None:
        async with SoloBroker(tmp_path) as broker:
            broker.create_topic("t")
            partition = broker.replicas.partitions["t", 0]
            partition.append(one_record(), 1, TIME_MS)
            consumer = await asyncio.to_thread(
                Consumer,
                bootstrap_servers=f"127.0.0.1:{broker.port}",
                fetch_max_wait_ms=LIMIT_MS,
                auto_offset_reset="earliest",
            )
            await asyncio.to_thread(consumer.assign, [TP])
            while not broker.services.purgatories.fetch.parked:
                await asyncio.sleep(0.01)  # record 0 is buffered, offset 1 is asked for
            await asyncio.to_thread(consumer.assign, [])
            await asyncio.to_thread(consumer.assign, [TP])
            assert await asyncio.to_thread(consumer.position, TP, LIMIT_MS) == 0
            partition.append(one_record(), 1, TIME_MS)
            found = await asyncio.to_thread(consumer.poll, LIMIT_MS)
            assert [row.offset for row in found[TP]][:1] == [0]
            await asyncio.to_thread(consumer.close)

    asyncio.run(run())


def test_a_seek_during_the_look_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, go = threading.Event(), threading.Event()
    real: LookUp = fetcher.list_one_offset

    async def slow(*args: Any) -> OffsetAndTimestamp:
        asked.set()
        await asyncio.to_thread(go.wait)
        return await real(*args)

    def scenario(consumer: Consumer) -> None:
        consumer.assign([TP])
        assert asked.wait(LIMIT_MS / 1000)
        consumer.seek_to_beginning(TP)
        consumer.end_offsets([TP])  # a round trip over the loop: the seek was seen there
        go.set()
        assert consumer.position(TP, LIMIT_MS) == 0

    monkeypatch.setattr(fetcher, "list_one_offset", slow)
    with_consumer(tmp_path, scenario)


def test_any_integer_is_an_offset(tmp_path: Path) -> None:
    def scenario(consumer: Consumer) -> None:
        consumer.assign([TP])
        consumer.seek(TP, np.int64(7))
        assert consumer.position(TP, LIMIT_MS) == 7
        with pytest.raises(UsageError, match="-1"):
            consumer.seek(TP, np.int64(-1))

    with_consumer(tmp_path, scenario)


def test_a_look_up_that_failed_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real: LookUp = fetcher.list_one_offset
    failures = [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 3

    async def failing(*args: Any) -> OffsetAndTimestamp:
        if failures:
            raise KafkaError(failures.pop(), "moved")
        return await real(*args)

    def scenario(consumer: Consumer) -> None:
        consumer.assign([TP])
        assert consumer.position(TP, LIMIT_MS) == 0

    monkeypatch.setattr(fetcher, "list_one_offset", failing)
    with_consumer(tmp_path, scenario)


def test_what_was_taken_before_an_error_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two partitions one is damaged: the other's records come, then the error, every time."""

    async def run() -> None:
        async with SoloBroker(tmp_path) as broker:
            broker.create_topic("t", 2)
            for index in (0, 1):
                broker.replicas.partitions["t", index].append(one_record(), 1, TIME_MS)
            await asyncio.to_thread(talk, broker.port)

    def talk(port: int) -> None:
        with Consumer(bootstrap_servers=f"127.0.0.1:{port}", auto_offset_reset="earliest") as c:
            good = TopicPartition("t", 0)
            c.assign([good, TopicPartition("t", 1)])
            while not all(entry.has_data for entry in c._fetcher.partitions.values()):
                c.position(good, LIMIT_MS)
            assert list(c.poll(LIMIT_MS)) == [good]
            for _ in range(2):
                with pytest.raises(KafkaError, match="damaged"):
                    c.poll(LIMIT_MS)

    taken: list[int] = []
    real = PartitionFetch.take

    def take(self: PartitionFetch, limit: int, *, check_crcs: bool) -> Any:
        if self.partition == 1:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "damaged")
        taken.append(self.partition)
        return real(self, limit, check_crcs=check_crcs)

    monkeypatch.setattr(PartitionFetch, "take", take)
    asyncio.run(run())
    assert taken
