"""Positions: seeks and assignments while responses to earlier requests are on their way."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from headwater.client.consumer import Consumer
from headwater.client.errors import CorruptRecordError
from headwater.client.values import TopicPartition
from headwater.errors import ErrorCode, UsageError
from headwater.records.builder import BatchBuilder
from headwater.wire.apis.k01_fetch import FetchResponse
from headwater.wire.apis.k02_list_offsets import ListOffsetsResponse
from solo_broker import SoloBroker
from unit.client.replies import change_replies, with_offset_row

TP = TopicPartition("t", 0)
LIMIT_MS = 10_000
TIME_MS = 1_795_000_000_000


def one_record() -> memoryview:
    builder = BatchBuilder()
    builder.append(TIME_MS, None, b"v")
    return memoryview(bytearray(builder.build()))


def with_consumer(tmp_path: Path, scenario: Callable[[Consumer], None], records: int = 0) -> None:
    def talk(port: int) -> None:
        with Consumer(bootstrap_servers=f"127.0.0.1:{port}") as consumer:
            scenario(consumer)

    async def run() -> None:
        async with SoloBroker(tmp_path) as broker:
            broker.create_topic("t")
            for _ in range(records):
                broker.replicas.partitions["t", 0].append(one_record(), 1, TIME_MS)
            await asyncio.to_thread(talk, broker.port)

    asyncio.run(run())


def test_the_response_to_a_fetch_of_an_earlier_assignment_is_dropped(tmp_path: Path) -> None:
    """It has records after those that were fetched, and dropped with the earlier assignment."""

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
    delayed = [True]

    async def slow(reply: ListOffsetsResponse) -> ListOffsetsResponse:
        if delayed:
            delayed.pop()
            asked.set()
            await asyncio.to_thread(go.wait)
        return reply

    def scenario(consumer: Consumer) -> None:
        consumer.assign([TP])
        assert asked.wait(LIMIT_MS / 1000)
        consumer.seek_to_beginning(TP)
        consumer.end_offsets([TP])  # a round trip over the loop: the seek was seen there
        go.set()
        assert consumer.position(TP, LIMIT_MS) == 0

    change_replies(monkeypatch, ListOffsetsResponse, slow)
    with_consumer(tmp_path, scenario)


def test_any_integer_is_an_offset(tmp_path: Path) -> None:
    def scenario(consumer: Consumer) -> None:
        consumer.assign([TP])
        consumer.seek(TP, np.int64(7))
        assert consumer.position(TP, LIMIT_MS) == 7
        with pytest.raises(UsageError, match="-1"):
            consumer.seek(TP, np.int64(-1))

    with_consumer(tmp_path, scenario, records=7)  # else a fetch at 7 would reset the position


def test_a_look_up_that_failed_is_retried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failures = [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 3

    async def failing(reply: ListOffsetsResponse) -> ListOffsetsResponse:
        return with_offset_row(reply, error_code=failures.pop()) if failures else reply

    def scenario(consumer: Consumer) -> None:
        consumer.assign([TP])
        assert consumer.position(TP, LIMIT_MS) == 0
        assert not failures

    change_replies(monkeypatch, ListOffsetsResponse, failing)
    with_consumer(tmp_path, scenario)


def test_records_before_an_error_are_returned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of two partitions is damaged: the other's records come, then the error, each time."""

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
            while not all(p.buffered_bytes for p in c.statistics().partitions.values()):
                c.position(good, LIMIT_MS)
            assert list(c.poll(LIMIT_MS)) == [good]
            for _ in range(2):
                with pytest.raises(CorruptRecordError, match="t-1"):
                    c.poll(LIMIT_MS)

    async def damage(reply: FetchResponse) -> FetchResponse:
        topics = []
        for topic in reply.responses:
            rows = []
            for row in topic.partitions:
                records = bytearray(row.records or b"")
                if row.partition_index == 1 and records:
                    records[-1] ^= 1
                rows.append(replace(row, records=memoryview(records)))
            topics.append(replace(topic, partitions=tuple(rows)))
        return replace(reply, responses=tuple(topics))

    change_replies(monkeypatch, FetchResponse, damage)
    asyncio.run(run())
