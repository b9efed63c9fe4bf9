"""A seek while the positions are being looked up is not forgotten."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from headwater.client import fetcher
from headwater.client.consumer import Consumer
from headwater.client.values import OffsetAndTimestamp, TopicPartition
from headwater.errors import ErrorCode, KafkaError
from solo_broker import SoloBroker

TP = TopicPartition("t", 0)
LIMIT_MS = 10_000
LookUp = Callable[..., Awaitable[OffsetAndTimestamp]]


def with_consumer(tmp_path: Path, scenario: Callable[[Consumer], None]) -> None:
    def talk(port: int) -> None:
        with Consumer(bootstrap_servers=f"127.0.0.1:{port}") as consumer:
            scenario(consumer)

    async def run() -> None:
        async with SoloBroker(tmp_path) as broker:
            broker.create_topic("t")
            await asyncio.to_thread(talk, broker.port)

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
