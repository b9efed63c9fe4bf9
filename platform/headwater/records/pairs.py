"""Keys and values of whole batches, and nothing else: what a table kept in a log is loaded from.

A coordinator loads hundreds of thousands of records while its clients wait. Read as `Record`s, and
each batch by way of a `BatchHeader`, they cost some three times as much (`bench/bench_load.py`).
"""

from __future__ import annotations

import struct

from crc32c import crc32c

from headwater.errors import ErrorCode, KafkaError
from headwater.records.batch import (
    AT_ATTRIBUTES,
    COMPRESSION_MASK,
    CONTROL_MASK,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC_V2,
    read_header,
)
from headwater.records.record import check_batch, read_headers, unpack_batch
from headwater.records.varint import read_varint

_FIELDS = struct.Struct(">qi4xbIhi30xi")
"""base_offset, batch_length, magic, crc, attributes, last_offset_delta, record_count."""

Latest = dict[bytes, bytes | None]
"""The last value of each key, in the order in which these last values came."""


def fold_latest(data: bytes, latest: Latest) -> tuple[int | None, int]:
    """Put every keyed record of whole batches into `latest`, later ones behind earlier ones.

    Returns the offset after the last whole batch (None without any) and how many records were seen.
    Control batches are passed over, and so is a batch that is cut off at the end.
    Raises KafkaError: CORRUPT_MESSAGE, UNSUPPORTED_FOR_MESSAGE_FORMAT.
    """
    view = memoryview(data)
    at, end, total = 0, len(data), 0
    next_offset: int | None = None
    while end - at >= HEADER_BYTES:
        base, length, magic, crc, attributes, last_delta, count = _FIELDS.unpack_from(data, at)
        size = length + LOG_OVERHEAD_BYTES
        if size < HEADER_BYTES:
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE, f"batch at offset {base}: {size} bytes in all"
            )
        if at + size > end:
            break
        if magic != MAGIC_V2 or crc32c(view[at + AT_ATTRIBUTES : at + size]) != crc:
            check_batch(view, at, read_header(view, at))  # it says what is wrong
        if not attributes & CONTROL_MASK:
            data_at, payload, stop = at + HEADER_BYTES, data, at + size
            try:
                if attributes & COMPRESSION_MASK:
                    payload = unpack_batch(view, at, read_header(view, at))
                    data_at, stop = 0, len(payload)
                data_at = _fold(payload, data_at, stop, count, latest)
                if data_at != stop:
                    raise ValueError(f"{stop - data_at} bytes behind the last record")
            except (ValueError, IndexError) as e:
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"batch at offset {base}: {e}") from e
            total += count
        next_offset = base + last_delta + 1
        at += size
    return next_offset, total


def _fold(data: bytes, at: int, end: int, count: int, latest: Latest) -> int:
    """The records of one payload; where they end. One-byte varints are read in place: nearly all.

    Raises ValueError, IndexError.
    """
    for _ in range(count):
        size = data[at]
        if size < 0x80:
            size, at = (size >> 1) ^ -(size & 1), at + 1
        else:
            size, at = read_varint(data, at)
        stop = at + size
        if size < 0 or stop > end:
            raise ValueError(f"record of {size} bytes in {end - at}")
        if data[at + 1] < 0x80 and data[at + 2] < 0x80:  # attributes and both deltas: unused
            at += 3
        else:
            _, at = read_varint(data, at + 1)
            _, at = read_varint(data, at)
        size = data[at]
        if size < 0x80:
            size, at = (size >> 1) ^ -(size & 1), at + 1
        else:
            size, at = read_varint(data, at)
        key = None if size < 0 else data[at : at + size]
        if size > 0:
            at += size
        size = data[at]
        if size < 0x80:
            size, at = (size >> 1) ^ -(size & 1), at + 1
        else:
            size, at = read_varint(data, at)
        value = None if size < 0 else data[at : at + size]
        if size > 0:
            at += size
        at = at + 1 if data[at] == 0 else read_headers(data, at)[1]
        if at != stop:
            raise ValueError(f"record ends at byte {at}, not at {stop}")
        if key is not None:
            if key in latest:
                del latest[key]
            latest[key] = value
    return at
