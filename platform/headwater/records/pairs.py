"""Reads only keys and values of batches: a coordinator loads its state from a compacted log.

It loads hundreds of thousands of records while its clients wait. Reading them as `Record`s, with a
`BatchHeader` per batch, takes about three times as long (`bench/bench_load.py`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from crc32c import crc32c

from headwater.errors import ErrorCode, KafkaError
from headwater.records.batch import (
    AT_ATTRIBUTES,
    COMPRESSION_MASK,
    CONTROL_MASK,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC_V2,
    TRANSACTIONAL_MASK,
    read_header,
)
from headwater.records.control import ControlType, control_type
from headwater.records.record import check_batch, read_headers, unpack_batch
from headwater.records.varint import read_varint

_FIELDS = struct.Struct(">qi4xbIhi16xqh4xi")
"""base_offset, batch_length, magic, crc, attributes, last_offset_delta, producer_id,
producer_epoch, record_count."""

Rows = dict[bytes, tuple[int, bytes | None]]
"""Key -> (offset, value) of its last record, in the order of these records."""


class OpenTransaction(NamedTuple):
    """The records of a transaction without a marker."""

    producer_epoch: int
    rows: Rows


class LatestRecords:
    """The last record of each key of a log, with its transactions settled (KIP-98).

    Records of a transaction count from its COMMIT marker on, and never after an ABORT marker. Where
    records of several transactions, or of none, have the same key, the higher log offset wins.
    """

    __slots__ = ("open", "rows")

    def __init__(self, rows: Rows | None = None) -> None:
        """`rows`: where committed records go, for a log in which the last one is not enough."""
        self.rows: Rows = {} if rows is None else rows
        """Committed records."""
        self.open: dict[int, OpenTransaction] = {}
        """Transactions without a marker, by producer id."""

    def add(self, data: bytes) -> tuple[int | None, int]:
        """Add every record with a key.

        Returns the offset after the last whole batch (None without any) and the number of records,
        without those of control batches. An incomplete batch at the end is left out.
        Raises KafkaError: CORRUPT_MESSAGE, UNSUPPORTED_FOR_MESSAGE_FORMAT.
        """
        view = memoryview(data)
        at, end, total = 0, len(data), 0
        next_offset: int | None = None
        while end - at >= HEADER_BYTES:
            base, length, magic, crc, attributes, last_delta, pid, epoch, count = (
                _FIELDS.unpack_from(data, at)
            )
            size = length + LOG_OVERHEAD_BYTES
            if size < HEADER_BYTES:
                raise KafkaError(
                    ErrorCode.CORRUPT_MESSAGE, f"batch at offset {base}: {size} bytes in all"
                )
            if at + size > end:
                break
            if magic != MAGIC_V2 or crc32c(view[at + AT_ATTRIBUTES : at + size]) != crc:
                check_batch(view, at, read_header(view, at))  # raises the error
            rows = self.rows
            if attributes & CONTROL_MASK:
                rows = {}
            elif attributes & TRANSACTIONAL_MASK:
                rows = self._rows_of(pid, epoch)
            data_at, payload, stop = at + HEADER_BYTES, data, at + size
            try:
                if attributes & COMPRESSION_MASK:
                    payload = unpack_batch(view, at, read_header(view, at))
                    data_at, stop = 0, len(payload)
                data_at = _fold(payload, data_at, stop, base, count, rows)
                if data_at != stop:
                    raise ValueError(f"{stop - data_at} bytes behind the last record")
            except (ValueError, IndexError) as e:
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"batch at offset {base}: {e}") from e
            if attributes & CONTROL_MASK:
                self._end(pid, rows)
            else:
                total += count
            next_offset = base + last_delta + 1
            at += size
        return next_offset, total

    def pending(self) -> Iterator[tuple[int, int, bytes, int, bytes | None]]:
        """(producer id, producer epoch, key, offset, value) of every record whose transaction is
        open; a committed record of the same key may have a higher offset."""
        for producer_id, transaction in self.open.items():
            for key, (offset, value) in transaction.rows.items():
                yield producer_id, transaction.producer_epoch, key, offset, value

    def _rows_of(self, producer_id: int, producer_epoch: int) -> Rows:
        known = self.open.get(producer_id)
        if known is None or known.producer_epoch != producer_epoch:
            rows = {} if known is None else known.rows
            known = self.open[producer_id] = OpenTransaction(producer_epoch, rows)
        return known.rows

    def _end(self, producer_id: int, markers: Rows) -> None:
        """Handle a control batch: a marker ends its transaction; other records are ignored."""
        for key in markers:
            kind = control_type(key)
            transaction = None
            if kind is not ControlType.UNKNOWN:
                transaction = self.open.pop(producer_id, None)
            if transaction is not None and kind is ControlType.COMMIT:
                self._commit(transaction.rows)

    def _commit(self, rows: Rows) -> None:
        for key, row in rows.items():
            known = self.rows.get(key)
            if known is None or known[0] < row[0]:
                self.rows.pop(key, None)
                self.rows[key] = row


def _fold(data: bytes, at: int, end: int, base: int, count: int, rows: Rows) -> int:
    """Add the records of one payload to `rows`; returns the position after the last one.

    One-byte varints, the common case, are read in place. Raises ValueError, IndexError.
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
        offset = data[at + 2]
        if data[at + 1] < 0x80 and offset < 0x80:  # attributes and timestamp delta: unused
            offset, at = base + (offset >> 1), at + 3
        else:
            _, at = read_varint(data, at + 1)
            offset, at = read_varint(data, at)
            offset += base
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
            if key in rows:
                del rows[key]
            rows[key] = (offset, value)
    return at
