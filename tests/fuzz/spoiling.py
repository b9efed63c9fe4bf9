"""Random mutations of valid bytes: changed, cut, repeated and inserted bytes."""

from __future__ import annotations

import contextlib
import random
import struct

from headwater.records.builder import build_batch
from headwater.wire.apis.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from headwater.wire.apis.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from headwater.wire.framing import encode_request
from headwater_broker.api.registry import load_handlers

# Requests that change the broker for good or wait for a controller have their own tests.
LEFT_OUT = frozenset({19, 20, 22, 33, 37, 43, 44, 45, 46, 47})
INTERESTING = (b"\0", b"\xff", b"\x7f", b"\x80", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff")
HEADER_BYTES = 8
LYING_SIZES = (-5, -1, 1, 100, 1 << 20, 1 << 30)
TIMESTAMP_MS = 1_700_000_000_000


def produce(version: int, name: str = "t") -> ProduceRequest:
    """One batch, twice."""
    records = build_batch([(TIMESTAMP_MS, None, b"v" * 20, ())])
    data = (PartitionProduceData(index=0, records=records),) * 2
    topic = "" if version >= 13 else name
    rows = (TopicProduceData(name=topic, partition_data=data),)
    return ProduceRequest(acks=1, timeout_ms=100, topic_data=rows)


def fetch(version: int, name: str = "t") -> FetchRequest:
    """One partition, twice."""
    row = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topic = FetchTopic(topic="" if version >= 13 else name, partitions=(row, row))
    return FetchRequest(max_wait_ms=5, min_bytes=0, topics=(topic,))


def seeds() -> list[bytes]:
    """Valid requests without their size: all versions of Produce and Fetch, two of other keys."""
    found = [encode_request(produce(v), v, 7, "me") for v in range(3, 14)]
    found += [encode_request(fetch(v), v, 7, "me") for v in range(4, 18)]
    for row in load_handlers().values():
        if row.handler is None or row.key in LEFT_OUT:
            continue
        for version in {row.low, row.high}:
            with contextlib.suppress(TypeError, ValueError, AttributeError):
                found.append(encode_request(row.request(), version, 7, "me"))
    return found


def spoil(good: bytes, chance: random.Random, kept: int = HEADER_BYTES) -> bytes:
    """Apply one to eight mutations; the first `kept` bytes mostly stay unchanged."""
    data = bytearray(good)
    draw = chance.random
    for _ in range((1, 1, 1, 2, 3, 8)[int(draw() * 6)]):
        low = kept if len(data) > kept + 1 and draw() < 0.9 else 0
        at = low + int(draw() * max(len(data) - low, 1))
        kind = int(draw() * 5)
        if kind == 0 and data:
            data[min(at, len(data) - 1)] = int(draw() * 256)
        elif kind == 1:
            value = INTERESTING[int(draw() * len(INTERESTING))]
            data[at : at + len(value)] = value
        elif kind == 2:
            del data[at : at + 1 + int(draw() * 8)]
        elif kind == 3:
            data[at:at] = chance.randbytes(1 + int(draw() * 8))
        else:
            del data[max(at, kept + 2) :]
    return bytes(data)


def framed(body: bytes, chance: random.Random) -> bytes:
    """The request with its size, which is sometimes wrong."""
    size = len(body)
    if chance.random() < 0.03:
        size += chance.choice((*LYING_SIZES, -(1 << 31) - size))
    return struct.pack(">i", max(min(size, 2**31 - 1), -(2**31))) + body
