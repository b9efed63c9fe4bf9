"""Leader epochs of a consumer's offsets (KIP-320): committed, handed on, and heeded."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headwater.client import fetcher
from headwater.client.consumer import Consumer
from headwater.client.values import OffsetAndMetadata, TopicPartition
from headwater.topic_names import OFFSETS_TOPIC
from solo_broker import SoloBroker
from unit.client.test_positions import one_record

TP = TopicPartition("t", 0)
LIMIT_MS = 20_000
SHORT_MS = 400
GROUP: dict[str, Any] = {
    "group_id": "g",
    "enable_auto_commit": False,
    "auto_offset_reset": "earliest",
}


def serve(folder: Path, scenario: Callable[[SoloBroker, asyncio.AbstractEventLoop], None]) -> None:
    """A broker that leads `t` in epoch 3 with two records, and the scenario in a thread."""

    async def run() -> None:
        async with SoloBroker(folder) as broker:
            broker.create_topic(OFFSETS_TOPIC, 1)
            broker.create_topic("t")
            broker.create_topic("t", epoch=3)
            for _ in range(2):
                broker.replicas.partitions["t", 0].append(one_record(), 1, 1_795_000_000_000)
            await asyncio.to_thread(scenario, broker, asyncio.get_running_loop())

    asyncio.run(run())


@contextmanager
def reading(port: int) -> Iterator[Consumer]:
    with Consumer(bootstrap_servers=f"127.0.0.1:{port}", **GROUP) as consumer:
        consumer.assign([TP])
        yield consumer


def test_a_commit_tells_the_epoch_of_what_was_read(tmp_path: Path) -> None:
    def scenario(broker: SoloBroker, _: asyncio.AbstractEventLoop) -> None:
        with reading(broker.port) as consumer:
            assert next(iter(consumer)).leader_epoch == 3
            consumer.commit()  # the second record waits in the iterator
            assert consumer.committed() == {TP: OffsetAndMetadata(1, "", 3)}
            assert next(iter(consumer)).offset == 1
            consumer.commit()
            assert consumer.committed() == {TP: OffsetAndMetadata(2, "", 3)}

    serve(tmp_path, scenario)


def test_whole_chunks_tell_it_too(tmp_path: Path) -> None:
    def scenario(broker: SoloBroker, _: asyncio.AbstractEventLoop) -> None:
        with reading(broker.port) as consumer:
            assert consumer.poll_arrow(2, LIMIT_MS).num_rows == 2
            consumer.commit()
            assert consumer.committed() == {TP: OffsetAndMetadata(2, "", 3)}

    serve(tmp_path, scenario)


def test_nobody_with_an_older_epoch_is_asked(tmp_path: Path) -> None:
    """The broker lags behind: nothing is read until it has heard of the epoch."""

    def scenario(broker: SoloBroker, loop: asyncio.AbstractEventLoop) -> None:
        with reading(broker.port) as consumer:
            consumer.commit({TP: OffsetAndMetadata(1, "", 7)})
        with reading(broker.port) as consumer:
            assert consumer.poll(SHORT_MS) == {}
            assert consumer.position(TP, LIMIT_MS) == 1
            loop.call_soon_threadsafe(lambda: broker.create_topic("t", epoch=7))
            assert [row.offset for row in consumer.poll(LIMIT_MS)[TP]] == [1]

    serve(tmp_path, scenario)


@pytest.mark.parametrize("seeks", [False, True])
def test_it_does_not_wait_for_ever(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    seeks: bool,
) -> None:
    """A topic made anew under its name begins with epoch 0, and its group may know a later one."""
    monkeypatch.setattr(fetcher, "BEHIND_PATIENCE_S", SHORT_MS / 1000)

    def scenario(broker: SoloBroker, _: asyncio.AbstractEventLoop) -> None:
        with reading(broker.port) as consumer:
            consumer.commit({TP: OffsetAndMetadata(1, "", 7)})
        with reading(broker.port) as consumer:
            assert consumer.position(TP, LIMIT_MS) == 1
            if seeks:
                consumer.seek_to_beginning(TP)
            found = consumer.poll(LIMIT_MS)
            assert [row.offset for row in found[TP]][:1] == [0 if seeks else 1]

    with caplog.at_level(logging.WARNING, logger="headwater.client.fetcher"):
        serve(tmp_path, scenario)
    (told,) = caplog.messages
    assert told.startswith("t-0: an offset was written under leader epoch 7, and no broker")
