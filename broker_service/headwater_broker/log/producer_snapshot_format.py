"""Producer snapshot files (`.snapshot`) in Kafka's format version 1, with a CRC-32C.

int16 version, uint32 crc of what follows, int32 count, then per producer: int64 id, int16 epoch,
int32 last sequence, int64 last offset, int32 offset delta, int64 timestamp, int32 coordinator
epoch, int64 first offset of the open transaction (-1: none).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from crc32c import crc32c

from headwater.errors import HeadwaterError
from headwater_broker.log.producer_state_manager import NO_SEQUENCE, ProducerBatch, ProducerEntry

VERSION = 1
HEADER = struct.Struct(">hI")
COUNT = struct.Struct(">i")
ENTRY = struct.Struct(">qhiqiqiq")


class SnapshotError(HeadwaterError):
    """A producer snapshot that is cut off, corrupt or of another version."""


def encode_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """The file's content; as in Kafka it has only the newest batch of each producer."""
    parts = []
    for entry in entries:
        newest = entry.batches[-1] if entry.batches else ProducerBatch(NO_SEQUENCE, -1, 0, -1)
        first = entry.transaction_first_offset
        parts.append(
            ENTRY.pack(
                entry.producer_id,
                entry.epoch,
                newest.last_sequence,
                newest.last_offset,
                newest.offset_delta,
                entry.last_timestamp,
                entry.coordinator_epoch,
                -1 if first is None else first,
            )
        )
    body = COUNT.pack(len(parts)) + b"".join(parts)
    return HEADER.pack(VERSION, crc32c(body)) + body


def decode_snapshot(data: bytes) -> list[ProducerEntry]:
    """The producers. Raises SnapshotError."""
    at = HEADER.size + COUNT.size
    if len(data) < at:
        raise SnapshotError(f"producer snapshot of {len(data)} bytes is cut off")
    version, crc = HEADER.unpack_from(data)
    (count,) = COUNT.unpack_from(data, HEADER.size)
    if version != VERSION:
        raise SnapshotError(f"producer snapshot version {version}, known is {VERSION}")
    if crc32c(data[HEADER.size :]) != crc:
        raise SnapshotError("producer snapshot: CRC does not match, the file is corrupt")
    if len(data) != at + count * ENTRY.size:
        raise SnapshotError(f"producer snapshot: {count} entries do not fill {len(data)} bytes")
    return [_entry(*fields) for fields in ENTRY.iter_unpack(data[at:])]


def _entry(
    producer_id: int,
    epoch: int,
    last_sequence: int,
    last_offset: int,
    offset_delta: int,
    timestamp: int,
    coordinator_epoch: int,
    transaction_first_offset: int,
) -> ProducerEntry:
    entry = ProducerEntry(producer_id, epoch)
    if last_sequence != NO_SEQUENCE or last_offset >= 0:
        entry.batches.append(ProducerBatch(last_sequence, last_offset, offset_delta, timestamp))
    entry.last_timestamp = timestamp
    entry.coordinator_epoch = coordinator_epoch
    if transaction_first_offset >= 0:
        entry.transaction_first_offset = transaction_first_offset
    return entry
