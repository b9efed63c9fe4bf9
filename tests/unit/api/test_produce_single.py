"""Produce requests of one partition: the short way answers and writes what the long way would."""

from __future__ import annotations

import asyncio
import random
import shutil
from pathlib import Path

import pytest

from headwater.ports.authorizer import AllowAll, Operation, Requester, ResourceType
from headwater.wire.apis.k00_produce import ProduceRequest
from headwater.wire.schema import encode
from headwater_broker.api import k00_produce
from headwater_broker.api.replies import CloseConnectionError
from solo_broker import SoloBroker
from unit.api.test_fetch_fast_path import flat, peer_of
from unit.network.test_data_plane import batch, produce_request
from unit.network.test_out_of_order_confirmed import sequenced

VERSIONS = (7, 8, 9, 12)
NOISE = b"\x01" * 40
"""What lies around a frame in the receive buffer."""
REQUESTS = 600
PER_CONNECTION = 10
"""What was refused is remembered per connection, and then the long way is gone."""


class NoWrites(AllowAll):
    """Nobody writes to "closed"."""

    def authorize(
        self, requester: Requester, operation: Operation, resource: ResourceType, name: str
    ) -> bool:
        return not (operation is Operation.WRITE and name == "closed")


def requests() -> list[ProduceRequest]:
    """Good and bad ones, in an order that is always the same."""
    chance = random.Random(11)
    spoilt = bytearray(batch(2))
    spoilt[-1] ^= 1
    asked = []
    for _ in range(REQUESTS):
        topic = chance.choice(("t",) * 12 + ("none", "closed", "__consumer_offsets", "é"))
        data = chance.choice(
            (
                batch(chance.randint(1, 9), chance.randint(0, 900)), batch(1, 50_000),
                bytes(spoilt), b"", None, b"short", sequenced(chance.randint(0, 5)),
                batch(1) + batch(1),
            )
        )  # fmt: skip
        acks = chance.choice((1, -1) * 5 + (0, 5, -2))
        partition = chance.choice((0,) * 12 + (1, -1))
        asked.append(produce_request(topic, data, acks, partition=partition))
    return asked


def outcomes(folder: Path, version: int) -> tuple[list[object], bytes]:
    """What one broker, and one connection to it, makes of them all; and the log it wrote."""

    async def scenario() -> tuple[list[object], bytes]:
        broker = SoloBroker(folder, message_max_bytes="20000")
        broker.authorizer = NoWrites()
        async with broker:
            for topic in ("t", "closed"):
                broker.create_topic(topic)
            found: list[object] = []
            for count, request in enumerate(requests()):
                if count % PER_CONNECTION == 0:
                    peer = peer_of(broker)
                body = encode(request, version)
                view = memoryview(bytearray(NOISE + body + NOISE))
                try:
                    answer = k00_produce.produce(
                        peer, view, len(NOISE), len(view) - len(NOISE), version, 77
                    )
                    found.append(flat(answer) or type(answer))
                except CloseConnectionError as error:
                    found.append(str(error))
            meter = broker.services.meters.topic("t")
            found.append((meter.bytes_in, meter.records_in))
            log = broker.services.replicas.partitions["t", 0].log
            return found, log.active.file.read_at(0, log.size_bytes)

    try:
        return asyncio.run(scenario())
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize("version", VERSIONS)
def test_both_ways_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    short, short_log = outcomes(tmp_path / "kafka", version)
    for parse in ("parse_single", "parse_single_flexible"):
        monkeypatch.setattr(k00_produce, parse, lambda view, at, end: None)
    whole, whole_log = outcomes(tmp_path / "kafka", version)
    assert short == whole
    assert short_log == whole_log
    assert len(short_log) > 20_000


@pytest.mark.parametrize("version", VERSIONS)
def test_it_is_the_way_that_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    ways: list[int] = []
    long_way = k00_produce._produce_all
    monkeypatch.setattr(
        k00_produce,
        "_produce_all",
        lambda *a: ways.append(1) or long_way(*a),  # type: ignore[func-returns-value]
    )
    outcomes(tmp_path / "kafka", version)
    assert 0 < len(ways) < REQUESTS * 3 // 4


@pytest.mark.parametrize("version", range(3, 7))
def test_what_lies_behind_a_frame_decides_nothing(tmp_path: Path, version: int) -> None:
    async def scenario() -> list[str]:
        async with SoloBroker(tmp_path) as broker:
            broker.create_topic("t")
            body = encode(produce_request("t", b"short"), version)
            found = []
            for tail in (b"", bytes(60), b"\x04" * 60):
                view = memoryview(bytearray(NOISE + body + tail))
                with pytest.raises(IndexError) as refused:
                    k00_produce.produce(
                        peer_of(broker), view, len(NOISE), len(NOISE) + len(body), version, 77
                    )
                found.append(str(refused.value))
            return found

    assert len(set(asyncio.run(scenario()))) == 1
