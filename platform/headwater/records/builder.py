"""Builds record batches of format v2: records in, the bytes of one batch out."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from crc32c import crc32c

from headwater.records.batch import (
    AT_ATTRIBUTES,
    CONTROL_MASK,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC_V2,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
)
from headwater.records.compression import Compression, compress
from headwater.records.record import NO_HEADERS, Headers, encode_record
from headwater.records.varint import NULL_LENGTH, TABLE_SIZE, VARINTS

RECORD_OVERHEAD_MAX_BYTES = 26
"""The most bytes that a record without headers takes beside its key and value."""
NO_TIMESTAMP = -1

_UINT32 = struct.Struct(">I")
_pack_head = struct.Struct(">qiibI").pack
_pack_single = struct.Struct(">hiqqqhii").pack
"""What a header has before its CRC, which is its end, and what the CRC covers of it."""


class BatchBuilder:
    """Collects the records of one batch. Not thread-safe.

    Offsets are 0, 1, 2, ... from the base offset; the first timestamp is the base timestamp.
    """

    __slots__ = ("base_timestamp", "count", "max_timestamp", "payload")

    def __init__(self) -> None:
        self.count = 0
        self.base_timestamp = NO_TIMESTAMP
        self.max_timestamp = NO_TIMESTAMP
        self.payload = bytearray()

    @property
    def size_bytes(self) -> int:
        """The batch's size without compression."""
        return HEADER_BYTES + len(self.payload)

    def append(
        self,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = NO_HEADERS,
    ) -> int:
        """Add a record; returns its offset within the batch."""
        offset_delta = self.count
        if offset_delta == 0:
            self.base_timestamp = self.max_timestamp = timestamp
            delta = 0
        else:
            delta = timestamp - self.base_timestamp
            if timestamp > self.max_timestamp:
                self.max_timestamp = timestamp
        self.count = offset_delta + 1
        value_size = 0 if value is None else len(value)
        key_size = 0 if key is None else len(key)
        if (
            headers
            or not 0 <= delta < TABLE_SIZE
            or offset_delta >= TABLE_SIZE
            or key_size + value_size + RECORD_OVERHEAD_MAX_BYTES >= TABLE_SIZE
        ):
            self.payload += encode_record(offset_delta, delta, key, value, headers)
            return offset_delta
        body = b"%b%b%b%b%b%b" % (
            VARINTS[delta],
            VARINTS[offset_delta],
            NULL_LENGTH if key is None else VARINTS[key_size],
            key or b"",
            NULL_LENGTH if value is None else VARINTS[value_size],
            value or b"",
        )
        self.payload += b"%b\x00%b\x00" % (VARINTS[len(body) + 2], body)
        return offset_delta

    def build(
        self,
        *,
        compression: int = Compression.NONE,
        level: int | None = None,
        base_offset: int = 0,
        leader_epoch: int = -1,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = -1,
        base_sequence: int = NO_SEQUENCE,
        transactional: bool = False,
        control: bool = False,
        log_append_time: bool = False,
        payload: memoryview | None = None,
    ) -> bytearray:
        """The bytes of the batch with its CRC. It may be called again with other values. `payload`:
        the records' bytes, where they are elsewhere than in the builder."""
        attributes = int(compression)
        attributes |= TRANSACTIONAL_MASK if transactional else 0
        attributes |= CONTROL_MASK if control else 0
        attributes |= TIMESTAMP_TYPE_MASK if log_append_time else 0
        packed = compress(compression, self.payload if payload is None else payload, level)
        out = bytearray(HEADER_BYTES)
        HEADER.pack_into(
            out,
            0,
            base_offset,
            HEADER_BYTES - LOG_OVERHEAD_BYTES + len(packed),
            leader_epoch,
            MAGIC_V2,
            0,
            attributes,
            self.count - 1,
            self.base_timestamp,
            self.max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            self.count,
        )
        out += packed
        seal(out)
        return out


def build_single(
    timestamp: int,
    key: bytes | None,
    value: bytes | None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    *,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
) -> bytearray:
    """A plain batch of one record without headers: a `BatchBuilder`'s, in less time."""
    key_size = 0 if key is None else len(key)
    value_size = 0 if value is None else len(value)
    if key_size + value_size + RECORD_OVERHEAD_MAX_BYTES >= TABLE_SIZE:
        builder = BatchBuilder()
        builder.append(timestamp, key, value)
        return builder.build(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            transactional=transactional,
        )
    body = b"\0\0\0%b%b%b%b\0" % (  # attributes, both deltas, ..., headers
        NULL_LENGTH if key is None else VARINTS[key_size],
        key or b"",
        NULL_LENGTH if value is None else VARINTS[value_size],
        value or b"",
    )
    rest = b"%b%b%b" % (
        _pack_single(
            TRANSACTIONAL_MASK if transactional else 0, 0, timestamp, timestamp, producer_id,
            producer_epoch, base_sequence, 1,
        ),
        VARINTS[len(body)],
        body,
    )  # fmt: skip
    head = _pack_head(0, AT_ATTRIBUTES + len(rest) - LOG_OVERHEAD_BYTES, -1, MAGIC_V2, crc32c(rest))
    return bytearray(head + rest)


def seal(batch: bytearray) -> None:
    """Compute and set the CRC of the batch."""
    with memoryview(batch) as view:
        _UINT32.pack_into(batch, 17, crc32c(view[AT_ATTRIBUTES:]))


def stamp_producer(
    batch: bytearray, producer_id: int, producer_epoch: int, base_sequence: int
) -> None:
    """Set producer id, producer epoch and base sequence of a built batch, and update its CRC."""
    struct.pack_into(">qhi", batch, 43, producer_id, producer_epoch, base_sequence)
    seal(batch)


def build_batch(
    records: Iterable[tuple[int, bytes | None, bytes | None, Headers]],
    *,
    compression: int = Compression.NONE,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytearray:
    """One batch of (timestamp, key, value, headers) rows, for stored records and tests."""
    builder = BatchBuilder()
    for timestamp, key, value, headers in records:
        builder.append(timestamp, key, value, headers)
    return builder.build(
        compression=compression, base_offset=base_offset, leader_epoch=leader_epoch
    )
