"""The 61-byte header of record batch v2, read and patched in place (KIP-98; Kafka "Record Batch").

Nothing here touches records: a batch is opaque bytes behind its header. Layout, big-endian:
base_offset q | batch_length i | partition_leader_epoch i | magic b | crc I | attributes h |
last_offset_delta i | base_timestamp q | max_timestamp q | producer_id q | producer_epoch h |
base_sequence i | record_count i. The CRC-32C covers everything from `attributes` on.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from crc32c import crc32c

HEADER_BYTES = 61
LOG_OVERHEAD_BYTES = 12
"""base_offset and batch_length. batch_length counts the bytes after them."""
MAGIC_V2 = 2

AT_BATCH_LENGTH = 8
AT_LEADER_EPOCH = 12
AT_MAGIC = 16
AT_CRC = 17
AT_ATTRIBUTES = 21
AT_COMPRESSION = 22
"""The low byte of the attributes, which holds the codec."""
AT_LAST_OFFSET_DELTA = 23
AT_BASE_TIMESTAMP = 27
AT_MAX_TIMESTAMP = 35
AT_PRODUCER_ID = 43
AT_RECORD_COUNT = 57

COMPRESSION_MASK = 0x07
TIMESTAMP_TYPE_MASK = 0x08
TRANSACTIONAL_MASK = 0x10
CONTROL_MASK = 0x20
DELETE_HORIZON_MASK = 0x40

NO_PRODUCER_ID = -1
NO_SEQUENCE = -1

HEADER = struct.Struct(">qiibIhiqqqhii")
_OFFSET = struct.Struct(">q")
_INT32 = struct.Struct(">i")
_UINT32 = struct.Struct(">I")


def codec_of(view: bytes | bytearray | memoryview, at: int = 0) -> int:
    """The codec of the batch at `at`. Raises IndexError when the view ends before it."""
    return view[at + AT_COMPRESSION] & COMPRESSION_MASK


class BatchHeader(NamedTuple):
    """One batch's header; `size_bytes` counts the whole batch."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """The whole batch, header included."""
        return self.batch_length + LOG_OVERHEAD_BYTES

    @property
    def last_offset(self) -> int:
        """The offset of the last record, inclusive."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset after this batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> int:
        """0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
        return self.attributes & COMPRESSION_MASK

    @property
    def is_control(self) -> bool:
        """True for transaction markers and other control batches."""
        return bool(self.attributes & CONTROL_MASK)

    @property
    def is_transactional(self) -> bool:
        """True when the batch belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL_MASK)

    @property
    def is_log_append_time(self) -> bool:
        """True when every record's timestamp is max_timestamp."""
        return bool(self.attributes & TIMESTAMP_TYPE_MASK)

    @property
    def delete_horizon_ms(self) -> int | None:
        """The time from which compaction may delete this batch's tombstones or marker (KIP-534).

        It is stored as the base timestamp, and the records' deltas count from it. None: not set.
        """
        return self.base_timestamp if self.attributes & DELETE_HORIZON_MASK else None


def read_header(view: memoryview | bytes | bytearray, at: int = 0) -> BatchHeader:
    """The header at byte `at`. Raises struct.error when fewer than 61 bytes are left."""
    return BatchHeader._make(HEADER.unpack_from(view, at))


def compute_crc(view: memoryview, at: int, size_bytes: int) -> int:
    """CRC-32C of the batch of `size_bytes` at byte `at`."""
    return crc32c(view[at + AT_ATTRIBUTES : at + size_bytes])


def patch_base_offset(view: memoryview, at: int, base_offset: int, leader_epoch: int) -> None:
    """Write base offset and leader epoch; neither is covered by the CRC."""
    _OFFSET.pack_into(view, at, base_offset)
    _INT32.pack_into(view, at + AT_LEADER_EPOCH, leader_epoch)


def patch_max_timestamp(view: memoryview, at: int, size_bytes: int, timestamp: int) -> None:
    """Set the max timestamp of the batch at `at`, and update its CRC."""
    _OFFSET.pack_into(view, at + AT_MAX_TIMESTAMP, timestamp)
    _UINT32.pack_into(view, at + AT_CRC, compute_crc(view, at, size_bytes))


def patch_append_time(view: memoryview, at: int, size_bytes: int, now_ms: int) -> None:
    """Set LogAppendTime (attribute bit and max timestamp), and update the CRC."""
    attributes = struct.unpack_from(">h", view, at + AT_ATTRIBUTES)[0] | TIMESTAMP_TYPE_MASK
    struct.pack_into(">h", view, at + AT_ATTRIBUTES, attributes)
    patch_max_timestamp(view, at, size_bytes, now_ms)


def iter_headers(view: memoryview | bytes, at: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of each whole batch from `at` on; an incomplete last one is left out.

    Raises ValueError on a batch_length too small to hold a header.
    """
    end = len(view)
    while end - at >= HEADER_BYTES:
        header = read_header(view, at)
        if header.batch_length < HEADER_BYTES - LOG_OVERHEAD_BYTES:
            raise ValueError(f"batch_length {header.batch_length} at byte {at} is too small")
        if at + header.size_bytes > end:
            return
        yield at, header
        at += header.size_bytes
