"""Rebuilds a batch with some of its records removed, as compaction does.

Base offset, last offset, sequence, epochs, flags and codec stay. So the gaps are legal, and the
producer state can still be read from the header.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from headwater.errors import ErrorCode, KafkaError
from headwater.records.batch import (
    COMPRESSION_MASK,
    DELETE_HORIZON_MASK,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    BatchHeader,
)
from headwater.records.builder import NO_TIMESTAMP, seal
from headwater.records.compression import compress
from headwater.records.record import unpack_batch
from headwater.records.varint import INT64_MAX, INT64_MIN, as_int64, read_varint, varint_of


class Span(NamedTuple):
    """The position of one record in a payload. Only the fields that compaction needs are read."""

    start: int
    body: int
    """Position after the length prefix: one byte of attributes, then the timestamp delta."""
    rest: int
    """Position after the timestamp delta."""
    end: int
    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    has_value: bool


def payload_of(batch: memoryview) -> bytes:
    """The decompressed records of a batch. Raises KafkaError that names the batch's offset."""
    return unpack_batch(batch, 0, BatchHeader._make(HEADER.unpack_from(batch)))


def spans(payload: bytes, header: BatchHeader) -> list[Span]:
    """The positions of all records in a payload. Raises KafkaError(CORRUPT_MESSAGE)."""
    try:
        return list(_spans(payload, header.record_count))
    except (ValueError, IndexError) as e:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE, f"batch at offset {header.base_offset}: {e}"
        ) from e


def _spans(data: bytes, count: int) -> Iterator[Span]:
    at, size_of_data = 0, len(data)
    for _ in range(count):
        start = at
        size, body = read_varint(data, at)
        end = body + size
        if size < 0 or end > size_of_data:
            raise ValueError(f"record of {size} bytes in {size_of_data - body}")
        timestamp_delta, rest = read_varint(data, body + 1)
        offset_delta, at = read_varint(data, rest)
        size, at = read_varint(data, at)
        key = None
        if size >= 0:
            key = data[at : at + size]
            at += size
        size, at = read_varint(data, at)
        if at > end:
            raise ValueError(f"record ends at byte {end}, its key at {at}")
        yield Span(start, body, rest, end, timestamp_delta, offset_delta, key, size >= 0)
        at = end


def rebuild(
    header: BatchHeader, payload: bytes, kept: Sequence[Span], delete_horizon_ms: int | None
) -> bytearray:
    """The batch with only these records. `delete_horizon_ms` is set if the batch has none yet."""
    attributes, base, shift = header.attributes, header.base_timestamp, 0
    if delete_horizon_ms is not None:
        attributes |= DELETE_HORIZON_MASK
        base, shift = delete_horizon_ms, base - delete_horizon_ms
    newest = header.max_timestamp
    if kept and not header.is_log_append_time:
        newest = header.base_timestamp + max(span.timestamp_delta for span in kept)
        if not INT64_MIN <= newest <= INT64_MAX:  # no client sends this, but a log may hold it
            newest = max(as_int64(header.base_timestamp + span.timestamp_delta) for span in kept)
    if shift:
        plain = b"".join(_shifted(payload, span, shift) for span in kept)
    else:
        plain = b"".join([payload[span.start : span.end] for span in kept])
    records = compress(header.compression, plain)
    out = bytearray(HEADER_BYTES)
    changed = header._replace(
        batch_length=HEADER_BYTES - LOG_OVERHEAD_BYTES + len(records),
        attributes=attributes,
        base_timestamp=base,
        max_timestamp=newest,
        record_count=len(kept),
    )
    HEADER.pack_into(out, 0, *changed)
    out += records
    seal(out)
    return out


def _shifted(payload: bytes, span: Span, shift: int) -> bytes:
    """One record with its timestamp delta counted from another base."""
    body = b"%b%b%b" % (
        payload[span.body : span.body + 1],
        varint_of(as_int64(span.timestamp_delta + shift)),
        payload[span.rest : span.end],
    )
    return varint_of(len(body)) + body


def emptied(header: BatchHeader) -> bytearray:
    """The batch without records. Its header still carries offsets and producer state."""
    out = bytearray(HEADER_BYTES)
    changed = header._replace(
        batch_length=HEADER_BYTES - LOG_OVERHEAD_BYTES,
        attributes=header.attributes & ~(COMPRESSION_MASK | DELETE_HORIZON_MASK),
        base_timestamp=NO_TIMESTAMP,
        record_count=0,
    )
    HEADER.pack_into(out, 0, *changed)
    seal(out)
    return out
