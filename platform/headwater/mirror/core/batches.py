"""Record batches on their way from the source to the target. Pure.

A batch passes as it is: only the fields of its producer, the base offset and the CRC are stamped
(KIP-98); the payload stays the same bytes, compressed or not. A target refuses three kinds of
batches, which are rebuilt with the same codec: those with gaps in their offsets (compaction), with
log append time, and with a delete horizon (KIP-534). So is one that was read in part. Small batches
without compression that wait together become one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from headwater.client.core.completed_fetch import AbortedFilter
from headwater.mirror.core.offset_translation import Run
from headwater.records.batch import (
    AT_ATTRIBUTES,
    AT_LEADER_EPOCH,
    AT_PRODUCER_ID,
    DELETE_HORIZON_MASK,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    BatchHeader,
    codec_of,
    iter_headers,
    read_header,
)
from headwater.records.builder import BatchBuilder, seal
from headwater.records.control import control_type
from headwater.records.record import Record, check_batch, decode_batch

SEQUENCE_MODULUS = 1 << 31
SMALL_BYTES = 2048
"""Smaller batches without compression are put together: a batch costs more than records."""
MERGED_BYTES = 16_384
"""The size of such a batch: Kafka's default of batch.size."""
_REBUILT = TIMESTAMP_TYPE_MASK | DELETE_HORIZON_MASK
_PRODUCER = struct.Struct(">qhi")
_BASE = struct.Struct(">q")
_EPOCH = struct.Struct(">i")


class Piece(NamedTuple):
    """What one source batch gives the target; without `data`, only a new position."""

    next_offset: int
    """The source offset after the batch."""
    leader_epoch: int
    records: int = 0
    data: memoryview | None = None
    """The source's batch as it is."""
    rebuilt: BatchBuilder | None = None
    codec: int = 0
    offsets: tuple[int, ...] = ()
    """Of a rebuilt batch: the source offset of each record."""
    source_offset: int = 0
    """Of a batch as it is: its base offset."""
    max_timestamp: int = -1

    @property
    def size_bytes(self) -> int:
        """The size in memory, for limits."""
        if self.data is not None:
            return len(self.data)
        return 0 if self.rebuilt is None else self.rebuilt.size_bytes

    @property
    def is_small(self) -> bool:
        """True for a batch that is worth to be put together with the next ones."""
        data = self.data
        return data is not None and len(data) < SMALL_BYTES and not codec_of(data)

    def stamped(self, producer_id: int, producer_epoch: int, sequence: int) -> bytearray:
        """The batch for a transaction of this producer."""
        if self.data is None:
            assert self.rebuilt is not None
            return self.rebuilt.build(
                compression=self.codec,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                base_sequence=sequence,
                transactional=True,
            )
        batch = bytearray(self.data)
        # The broker keeps a compressed batch as it is only if its offsets count from 0.
        _BASE.pack_into(batch, 0, 0)
        _EPOCH.pack_into(batch, AT_LEADER_EPOCH, -1)
        batch[AT_ATTRIBUTES + 1] |= TRANSACTIONAL_MASK
        _PRODUCER.pack_into(batch, AT_PRODUCER_ID, producer_id, producer_epoch, sequence)
        seal(batch)
        return batch

    def runs(self, base_offset: int) -> list[Run]:
        """Where the records are once the target has put the batch at `base_offset`."""
        if self.data is not None:
            return [Run(self.source_offset, base_offset, self.records)]
        runs: list[Run] = []
        for delta, offset in enumerate(self.offsets):
            if runs and runs[-1].source_end == offset:
                runs[-1] = runs[-1]._replace(length=runs[-1].length + 1)
            else:
                runs.append(Run(offset, base_offset + delta, 1))
        return runs


def pieces_of(
    records: memoryview, start: int, aborted: list[tuple[int, int]], *, rebuild: bool = True
) -> Iterator[Piece]:
    """The pieces of one fetch, from offset `start` on. Raises KafkaError for a corrupt batch.

    Control batches and aborted transactions give a position only (read_committed). The CRC is
    checked: stamping would hide what broke it. Without `rebuild` each batch is as it is.
    """
    hidden = AbortedFilter(aborted)
    for at, header in iter_headers(records):
        check_batch(records, at, header)
        is_aborted = header.is_transactional and hidden.is_aborted(
            header.producer_id, header.last_offset
        )
        if header.is_control:
            rows = decode_batch(records, at, header)
            if rows:
                hidden.on_marker(header.producer_id, control_type(rows[0].key))
        visible = not (header.is_control or is_aborted) and header.record_count > 0
        if not visible or header.last_offset < start:
            yield Piece(header.next_offset, header.leader_epoch)
        elif not rebuild or _passes(header, start):
            yield Piece(
                header.next_offset,
                header.leader_epoch,
                header.record_count,
                records[at : at + header.size_bytes],
                source_offset=header.base_offset,
                max_timestamp=header.max_timestamp,
            )
        else:
            yield _rebuilt(records, at, header, start)


def merged(pieces: Sequence[Piece]) -> Piece:
    """One batch of the records of small ones, which follow each other."""
    builder = BatchBuilder()
    offsets: list[int] = []
    for piece in pieces:
        if piece.data is not None:
            for row in decode_batch(piece.data, 0, read_header(piece.data)):
                builder.append(row.timestamp, row.key, row.value, row.headers)
                offsets.append(row.offset)
    return Piece(
        pieces[-1].next_offset,
        pieces[-1].leader_epoch,
        len(offsets),
        rebuilt=builder,
        offsets=tuple(offsets),
        max_timestamp=builder.max_timestamp,
    )


def visible_records(
    records: memoryview, start: int, aborted: list[tuple[int, int]]
) -> list[Record]:
    """The records of one fetch that a read_committed reader sees, decoded. Raises KafkaError."""
    found: list[Record] = []
    for piece in pieces_of(records, start, aborted, rebuild=False):
        if piece.data is not None:
            found += decode_batch(piece.data, 0, read_header(piece.data), start)
    return found


def _passes(header: BatchHeader, start: int) -> bool:
    return (
        header.record_count == header.last_offset_delta + 1
        and not header.attributes & _REBUILT
        and header.base_offset >= start
    )


def _rebuilt(records: memoryview, at: int, header: BatchHeader, start: int) -> Piece:
    rows = decode_batch(records, at, header, start)
    if not rows:
        return Piece(header.next_offset, header.leader_epoch)
    builder = BatchBuilder()
    for row in rows:
        builder.append(row.timestamp, row.key, row.value, row.headers)
    return Piece(
        header.next_offset,
        header.leader_epoch,
        len(rows),
        rebuilt=builder,
        codec=header.compression,
        offsets=tuple(row.offset for row in rows),
        max_timestamp=builder.max_timestamp,
    )
