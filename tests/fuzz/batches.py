"""Mutated record batches against everything that reads batches.

The leader's append (plain, compacted, recompressing topics), the client's reader, the Arrow decoder
and compaction. Each accepts a batch or refuses it; those that accept it must see the same records.
Most mutated batches get a valid length and CRC: no reader would get past those otherwise.
"""

from __future__ import annotations

import contextlib
import random
import struct
import time
from collections.abc import Callable
from uuid import UUID

from crc32c import crc32c

from fuzz.spoiling import TIMESTAMP_MS, spoil
from headwater.columnar.decode import CorruptRecordsError, decode_batches
from headwater.errors import ErrorCode, KafkaError
from headwater.records.batch import (
    AT_ATTRIBUTES,
    AT_CRC,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    iter_headers,
    read_header,
)
from headwater.records.builder import BatchBuilder
from headwater.records.compression import Compression
from headwater.records.control import ControlType, build_marker, parse_marker
from headwater.records.filter import payload_of, rebuild, spans
from headwater.records.record import read_records
from headwater_broker.log.unified_log import UnifiedLog
from unit.log.harness import Box

BATCH_CPU_MAX_S = 1.0
ROWS = [
    [(None, b"v" * 20, ())],
    [(b"k", b"v", ()), (b"k2", None, ()), (None, b"", ())],
    [(b"key", b"value" * 30, (("h", b"1"), ("empty", None), ("h", b"")))],
    [(b"%d" % number, b"x" * number, ()) for number in range(40)],
]
END = 1 << 62
Rows = list[tuple[int, bytes | None, bytes | None]]
Reader = Callable[[bytes], Rows | None]
TOPICS: dict[str, dict[str, str]] = {
    "plain": {},
    "compacted": {"cleanup_policy": "compact"},
    "recompressed": {"compression_type": "gzip"},
}


def seeds() -> list[bytes]:
    """Every codec, keys and values and headers of every kind, producers, a marker."""
    found = []
    for rows in ROWS:
        for codec in Compression:
            for producer in ({}, {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}):
                builder = BatchBuilder()
                for number, (key, value, headers) in enumerate(rows):
                    builder.append(TIMESTAMP_MS + number, key, value, headers)
                found.append(bytes(builder.build(compression=codec, **producer)))  # type: ignore[arg-type]
    marker = build_marker(
        ControlType.ABORT, producer_id=7, producer_epoch=0, coordinator_epoch=3,
        timestamp=TIMESTAMP_MS,
    )  # fmt: skip
    return [*found, bytes(marker)]


def sealed(data: bytes, chance: random.Random) -> bytes:
    """The batch, mostly with a valid length and CRC."""
    if len(data) < HEADER_BYTES:
        return data
    whole = bytearray(data)
    if chance.random() < 0.9:
        struct.pack_into(">i", whole, LOG_OVERHEAD_BYTES - 4, len(whole) - LOG_OVERHEAD_BYTES)
    if chance.random() < 0.9:
        struct.pack_into(">I", whole, AT_CRC, crc32c(whole[AT_ATTRIBUTES:]))
    return bytes(whole)


def fuzz_batches(count: int, seed: int, by_arrow: Reader | None = None) -> dict[str, int]:
    """Feed `count` batches to all readers. Raises AssertionError with the batch that did harm."""
    by_arrow = by_arrow or _by_arrow
    chance, good = random.Random(seed), seeds()
    counts = {"batches": 0, "appended": 0, "read": 0, "refused by one": 0}
    box = Box()
    logs = {
        name: box.log(topic=name, topic_id=UUID(int=at), **overrides)
        for at, (name, overrides) in enumerate(TOPICS.items(), 1)
    }
    for data in good:  # the first batch of a kind may compile kernels, which is not timed
        _one(data, logs, by_arrow, {"appended": 0, "read": 0, "refused by one": 0})
    for _ in range(count):
        data = sealed(spoil(good[int(chance.random() * len(good))], chance, HEADER_BYTES), chance)
        began = time.thread_time()
        try:
            _one(data, logs, by_arrow, counts)
        except Exception as error:
            raise AssertionError(f"{data.hex()}: {error!r}") from error
        took = time.thread_time() - began
        assert took < BATCH_CPU_MAX_S, f"{took:.1f} s for {data.hex()}"
    counts["batches"] = count
    return counts


def _one(
    data: bytes, logs: dict[str, UnifiedLog], by_arrow: Reader, counts: dict[str, int]
) -> None:
    taken = set()
    for name, log in logs.items():
        with contextlib.suppress(KafkaError):
            log.append_as_leader(memoryview(bytearray(data)), 1, TIMESTAMP_MS)
            taken.add(name)
    plain, arrow = _by_the_reader(data), by_arrow(data)
    if "plain" in taken:  # readers may differ about batches that no broker stores
        counts["appended"] += 1
        if plain is None or arrow is None:
            counts["refused by one"] += (plain is None) != (arrow is None)
        else:
            assert plain == arrow, f"the reader sees {plain}, the decoder {arrow}"
            counts["read"] += 1
    _as_compaction(data)


def _by_the_reader(data: bytes) -> Rows | None:
    try:
        found = list(read_records(data, with_control=True))
    except (KafkaError, ValueError):
        return None
    headers = list(iter_headers(data))
    if any(header.is_control for _, header in headers):
        for record in found:
            with contextlib.suppress(KafkaError):
                parse_marker(record)
        return []
    return [(r.offset, r.key, r.value) for r in found]


def _by_arrow(data: bytes) -> Rows | None:
    columns = ("offset", "key", "value", "timestamp", "headers", "headers_raw")
    try:
        decoded = decode_batches(data, start_offset=0, end_offset=END, columns=columns)
    except CorruptRecordsError:
        return None
    return [
        (row["offset"], row["key"], row["value"])
        for chunk in decoded.chunks
        for row in chunk.select(["offset", "key", "value"]).to_pylist()
    ]


def _as_compaction(data: bytes) -> None:
    if len(data) < HEADER_BYTES or read_header(data).size_bytes != len(data):
        return
    header = read_header(data)
    try:
        payload = payload_of(memoryview(data))
        kept = spans(payload, header)[::2]
    except KafkaError as error:
        assert error.code in (
            ErrorCode.CORRUPT_MESSAGE,
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            ErrorCode.MESSAGE_TOO_LARGE,
        ), error
        return
    if kept:
        rebuild(header, payload, kept, None)
