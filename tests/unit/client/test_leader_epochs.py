"""Leader epochs of a consumer's offsets (KIP-320): committed, and required of leaders."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headwater.client.consumer import Consumer
from headwater.client.values import OffsetAndMetadata, TopicPartition
from headwater.topic_names import OFFSETS_TOPIC
from headwater.wire.apis.k02_list_offsets import ListOffsetsResponse
from solo_broker import SoloBroker
from unit.client.replies import change_replies, with_offset_row
from unit.client.test_positions import TIME_MS, one_record

TP = TopicPartition("t", 0)
LIMIT_MS = 20_000
SHORT_MS = 400
GROUP: dict[str, Any] = {
    "group_id": "g",
    "enable_auto_commit": False,
    "auto_offset_reset": "earliest",
}


def serve(folder: Path, scenario: Callable[[SoloBroker, asyncio.AbstractEventLoop], None]) -> None:
    """Run the scenario in a thread, with a broker that leads `t` in epoch 5. The first record has
    epoch 3, the second 5."""

    async def run() -> None:
        async with SoloBroker(folder) as broker:
            broker.create_topic(OFFSETS_TOPIC, 1)
            broker.create_topic("t")
            for epoch in (3, 5):
                broker.create_topic("t", epoch=epoch)
                broker.replicas.partitions["t", 0].append(one_record(), 1, TIME_MS)
            await asyncio.to_thread(scenario, broker, asyncio.get_running_loop())

    asyncio.run(run())


@contextmanager
def reading(port: int, **options: Any) -> Iterator[Consumer]:
    with Consumer(bootstrap_servers=f"127.0.0.1:{port}", **GROUP, **options) as consumer:
        consumer.assign([TP])
        yield consumer


def committed(consumer: Consumer) -> tuple[int, int]:
    """(offset, leader epoch) once all positions are committed."""
    consumer.commit()
    found = consumer.committed()[TP]
    return found.offset, found.leader_epoch


def test_a_commit_has_the_epoch_of_the_last_record_read(tmp_path: Path) -> None:
    def scenario(broker: SoloBroker, _: asyncio.AbstractEventLoop) -> None:
        with reading(broker.port) as consumer:
            assert consumer.position(TP, LIMIT_MS) == 0
            assert committed(consumer) == (0, -1)
            assert [row.leader_epoch for row in consumer.poll(LIMIT_MS, 1)[TP]] == [3]
            assert committed(consumer) == (1, 3)
            assert [row.leader_epoch for row in consumer.poll(LIMIT_MS, 1)[TP]] == [5]
            assert committed(consumer) == (2, 5)
        with reading(broker.port) as heir:
            assert heir.position(TP, LIMIT_MS) == 2
            assert committed(heir) == (2, 5), "it has read nothing, and commits the epoch again"

    serve(tmp_path, scenario)


def test_a_commit_during_iteration_has_the_epoch_of_the_next_record(tmp_path: Path) -> None:
    def scenario(broker: SoloBroker, _: asyncio.AbstractEventLoop) -> None:
        with reading(broker.port) as consumer:
            while not consumer.statistics().partitions[TP].buffered_bytes:
                consumer.position(TP, LIMIT_MS)
            rows = iter(consumer)
            assert next(rows).offset == 0
            assert committed(consumer) == (1, 5)

    serve(tmp_path, scenario)


def test_a_commit_after_poll_arrow_has_the_epoch_too(tmp_path: Path) -> None:
    def scenario(broker: SoloBroker, _: asyncio.AbstractEventLoop) -> None:
        with reading(broker.port) as consumer:
            while consumer.position(TP, LIMIT_MS) < 2:
                consumer.poll_arrow(2, LIMIT_MS)
            assert committed(consumer) == (2, 5)

    serve(tmp_path, scenario)


@pytest.mark.parametrize("source", ["commit", "seek", "list"])
def test_no_leader_of_an_older_epoch_is_read_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    """The broker lags behind: nothing is read until it knows the epoch."""
    at = OffsetAndMetadata(1, "", 7)

    async def listed(reply: ListOffsetsResponse) -> ListOffsetsResponse:
        return with_offset_row(reply, offset=at.offset, leader_epoch=at.leader_epoch)

    if source == "list":
        change_replies(monkeypatch, ListOffsetsResponse, listed)

    def scenario(broker: SoloBroker, loop: asyncio.AbstractEventLoop) -> None:
        with reading(broker.port) as consumer:
            consumer.commit({TP: at} if source == "commit" else {})
        with reading(broker.port) as consumer:
            if source == "seek":
                consumer.seek(TP, at)
            assert consumer.position(TP, LIMIT_MS) == 1
            assert consumer.poll(SHORT_MS) == {}
            loop.call_soon_threadsafe(lambda: broker.create_topic("t", epoch=7))
            assert [row.offset for row in consumer.poll(LIMIT_MS)[TP]] == [1]

    serve(tmp_path, scenario)


def test_unassigning_the_partition_drops_the_required_epoch(tmp_path: Path) -> None:
    def scenario(broker: SoloBroker, _: asyncio.AbstractEventLoop) -> None:
        with reading(broker.port) as consumer:
            consumer.seek(TP, OffsetAndMetadata(1, "", 7))
            assert consumer.poll(SHORT_MS) == {}
            consumer.assign([])
            assert consumer.end_offsets([TP]) == {TP: 2}

    serve(tmp_path, scenario)


@pytest.mark.parametrize("seeks", [False, True])
def test_a_required_epoch_has_a_time_limit(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    seeks: bool,
) -> None:
    """A topic that is created again begins with epoch 0, and its group may know a later one."""

    def scenario(broker: SoloBroker, _: asyncio.AbstractEventLoop) -> None:
        with reading(broker.port, stale_leader_timeout_ms=SHORT_MS) as consumer:
            consumer.commit({TP: OffsetAndMetadata(1, "", 7)})
        with reading(broker.port, stale_leader_timeout_ms=SHORT_MS) as consumer:
            assert consumer.position(TP, LIMIT_MS) == 1
            if seeks:
                consumer.seek_to_beginning(TP)
            first = consumer.poll(LIMIT_MS, 1)[TP][0]
            assert first.offset == (0 if seeks else 1)
            assert committed(consumer) == (first.offset + 1, first.leader_epoch)

    with caplog.at_level(logging.WARNING, logger="headwater.client.fetcher"):
        serve(tmp_path, scenario)
    # Of the fetcher alone: on a slow machine the consumer reports an outage beside it.
    told = [row.getMessage() for row in caplog.records if row.name == "headwater.client.fetcher"]
    (message,) = told
    assert message.startswith("t-0: an offset has leader epoch 7, and no broker ")


def test_an_epoch_that_no_broker_knew_is_not_committed_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def scenario(broker: SoloBroker, _: asyncio.AbstractEventLoop) -> None:
        with reading(broker.port, stale_leader_timeout_ms=SHORT_MS) as consumer:
            consumer.commit({TP: OffsetAndMetadata(2, "", 7)})
        with reading(broker.port, stale_leader_timeout_ms=SHORT_MS) as consumer:
            assert consumer.position(TP, LIMIT_MS) == 2
            while not caplog.messages:
                assert consumer.poll(10) == {}
            consumer.end_offsets([TP])  # a round trip over the loop, which then has forgotten it
            assert committed(consumer) == (2, -1)

    with caplog.at_level(logging.WARNING, logger="headwater.client.fetcher"):
        serve(tmp_path, scenario)
