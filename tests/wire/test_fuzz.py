"""Frames that went wrong in every way chance finds: no crash, no hang, nobody else harmed.

A fixed seed and a small count here; HEADWATER_FUZZ_FRAMES makes the count large (`make fuzz`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.client.connection import Connection, open_connection
from headwater.records.builder import build_batch
from headwater.wire.apis.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from headwater.wire.apis.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from headwater.wire.apis.k03_metadata import MetadataRequest, MetadataResponse
from headwater.wire.framing import encode_request
from headwater_broker.api.fetch_frames import parse_fetch
from headwater_broker.api.produce_frames import parse_flexible, parse_plain
from headwater_broker.api.registry import load_handlers
from headwater_broker.server.kafka_tcp import MALFORMED
from solo_broker import SoloBroker

SEED = 20260101
FRAMES = int(os.environ.get("HEADWATER_FUZZ_FRAMES", "1500"))
PER_CONNECTION = 10
PARSE_MAX_S = 1.0
CANARY_EVERY = 250
CANARY_MAX_S = 10.0
# What would change the broker for good, or wait for a controller, is left to its own tests.
LEFT_OUT = frozenset({19, 20, 22, 33, 37, 43, 44, 45, 46, 47})
INTERESTING = (b"\0", b"\xff", b"\x7f", b"\x80", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff")


def produce(version: int, name: str = "t") -> ProduceRequest:
    records = build_batch([(1_700_000_000_000, None, b"v" * 20, ())])
    data = (PartitionProduceData(index=0, records=records),) * 2
    by_id = version >= 13
    return ProduceRequest(
        acks=1,
        timeout_ms=100,
        topic_data=(TopicProduceData(name="" if by_id else name, partition_data=data),),
    )


def fetch(version: int, name: str = "t") -> FetchRequest:
    row = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topic = FetchTopic(topic="" if version >= 13 else name, partitions=(row, row))
    return FetchRequest(max_wait_ms=5, min_bytes=0, topics=(topic,))


def seeds() -> list[bytes]:
    """Good frames, without their length: every version of the raw paths, one per other API."""
    found = [encode_request(produce(v), v, 7, "me") for v in range(3, 14)]
    found += [encode_request(fetch(v), v, 7, "me") for v in range(4, 18)]
    for row in load_handlers().values():
        if row.handler is None or row.key in LEFT_OUT:
            continue
        for version in {row.low, row.high}:
            with contextlib.suppress(TypeError, ValueError, AttributeError):
                found.append(encode_request(row.request(), version, 7, "me"))
    return found


def spoil(good: bytes, chance: random.Random) -> bytes:
    """Some bytes changed, cut, repeated or inserted; the API key and version mostly left alone."""
    data = bytearray(good)
    for _ in range(chance.choice((1, 1, 1, 2, 3, 8))):
        low = 8 if chance.random() < 0.9 and len(data) > 9 else 0
        at = chance.randrange(low, max(len(data), low + 1))
        kind = chance.randrange(5)
        if kind == 0 and data:
            data[min(at, len(data) - 1)] = chance.randrange(256)
        elif kind == 1:
            value = chance.choice(INTERESTING)
            data[at : at + len(value)] = value
        elif kind == 2:
            del data[at : at + chance.randrange(1, 9)]
        elif kind == 3:
            data[at:at] = bytes(chance.randrange(256) for _ in range(chance.randrange(1, 9)))
        else:
            del data[max(at, 10) :]
    return bytes(data)


def framed(body: bytes, chance: random.Random) -> bytes:
    """With its length, which is sometimes a lie."""
    size = len(body)
    if chance.random() < 0.03:
        size += chance.choice((-5, -1, 1, 100, 1 << 20, 1 << 30, -(1 << 31) - size))
    return struct.pack(">i", max(min(size, 2**31 - 1), -(2**31))) + body


@pytest.mark.parametrize(
    ("parse", "make", "versions"),
    [
        (parse_plain, produce, range(3, 9)),
        (parse_flexible, produce, range(9, 14)),
        (parse_fetch, fetch, range(4, 18)),
    ],
    ids=["produce", "flexible produce", "fetch"],
)
def test_the_parsers_in_place_refuse_or_parse(
    parse: Callable[..., object], make: Callable[[int], ProduceRequest], versions: range
) -> None:
    chance = random.Random(SEED)
    for count in range(FRAMES * 2):
        version = versions[count % len(versions)]
        good = encode_request(make(version), version, 7, "me")
        header = 8 + 2 + 2 + (1 if version >= make(version).flexible else 0)
        body = memoryview(bytearray(spoil(good, chance)))
        start = time.perf_counter()
        with contextlib.suppress(*MALFORMED):
            parse(body, header, len(body), version)
        assert time.perf_counter() - start < PARSE_MAX_S, (version, bytes(body).hex())


@pytest.mark.parametrize("size", [-1, -2, -6, -32768])
def test_a_negative_length_does_not_go_round_for_ever(size: int) -> None:
    """The reader would step back to where it was, as often as the count says."""
    body = struct.pack(">hhiihii", -1, 1, 1, 1 << 30, size, 0, 0)
    with pytest.raises(MALFORMED):
        parse_plain(memoryview(body), 0, len(body), 7)
    body = struct.pack(">iiiibii", -1, 1, 1, 1, 0, 0, 0) + struct.pack(">ihii", 1 << 30, size, 0, 0)
    with pytest.raises(MALFORMED):
        parse_fetch(memoryview(body), 0, len(body), 7)


async def still_fine(other: Connection) -> None:
    reply = await other.call(MetadataRequest(topics=None), MetadataResponse, timeout_s=CANARY_MAX_S)
    assert "t" in [topic.name for topic in reply.topics]


async def throw(port: int, frames: list[bytes]) -> None:
    """Send all that the broker takes; whether it answers or closes is its business."""
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    with contextlib.suppress(ConnectionError):
        for frame in frames:
            writer.write(frame)
            await writer.drain()
        await asyncio.sleep(0)
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


@pytest.mark.timeout(3600)
def test_a_broker_under_spoiled_frames(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    chance = random.Random(SEED + 1)
    good = seeds()

    async def scenario() -> None:
        async with SoloBroker(tmp_path, socket_request_max_bytes="1048576") as broker:
            broker.create_topic("t")
            other = await open_connection("127.0.0.1", broker.port)
            for count in range(0, FRAMES, PER_CONNECTION):
                frames = [
                    framed(spoil(chance.choice(good), chance), chance)
                    for _ in range(PER_CONNECTION)
                ]
                await throw(broker.port, frames)
                if count % CANARY_EVERY == 0:
                    await still_fine(other)
            await still_fine(other)
            other.close()
            await asyncio.sleep(0.1)
            meters = broker.services.meters
            assert meters.connections_closed_malformed > 0
            assert meters.connections <= 1, "closed connections are forgotten"

    with caplog.at_level(logging.ERROR):
        asyncio.run(scenario())
    unforeseen = [r for r in caplog.records if r.exc_info or "internal error" in r.getMessage()]
    assert not unforeseen, unforeseen[0].exc_text or unforeseen[0].getMessage()
