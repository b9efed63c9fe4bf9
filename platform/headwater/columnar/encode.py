"""Encodes Arrow columns as record batches with numba, for tiered reads and for `send_table`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.columnar import encode_kernels as k
from headwater.columnar.buffers import ABSENT, Binary, binary, header_lists, numbers
from headwater.columnar.schema import HEADERS
from headwater.records.batch import (
    AT_ATTRIBUTES,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC_V2,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    compute_crc,
)
from headwater.records.compression import Compression, compress

BATCH_BYTES_MAX = 1 << 20
"""Uncompressed size of a batch. A larger row gets a batch of its own."""
BATCH_ROWS_MAX = (1 << 31) - 1
OFFSET_SPAN_MAX = 1 << 31
"""Offsets that one batch can span: its last offset delta is an int32."""
WIDE_GAP = 1_000_000
"""Offsets without rows that are empty batches: members of a share group acquire each offset of a
batch with records."""
SEQUENCE_MASK = (1 << 31) - 1
NO_TIMESTAMP = -1
NO_LEADER_EPOCH = -1

_EMPTY = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """One record batch, ready to send, with CRC and base offset (0 for a producer)."""

    data: memoryview
    base_offset: int
    next_offset: int
    record_count: int
    max_timestamp: int
    first_row: int
    """Index of its first row in the input."""


@dataclass(frozen=True, slots=True)
class _Columns:
    """The rows of a table as numpy arrays, for the kernels."""

    offsets: Any
    times_ms: Any
    append_time: Any
    epochs: Any
    key: Binary
    value: Binary
    lists: tuple[Any, Any]
    header_key: Binary
    header_value: Binary
    raw: Binary


@dataclass(frozen=True, slots=True)
class _Shape:
    """The properties of the batches of one call."""

    codec: int = 0
    attributes: int = 0
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1


def arrow_to_batches(
    rows: pa.RecordBatch,
    *,
    start_offset: int,
    end_offset: int,
    batch_bytes_max: int = BATCH_BYTES_MAX,
) -> list[EncodedBatch]:
    """Rows of a log table, of one partition and sorted by offset, as uncompressed batches.

    The batches cover [start_offset, end_offset) without a gap, or a client would fetch the gap for
    ever: the first starts at start_offset, each one's last offset delta reaches up to the next
    one's first row, and the last one's up to end_offset. Without rows it is one empty batch. Leader
    epochs, timestamp types, timestamps, headers and nulls are restored.
    """
    if not rows.num_rows:
        return _empty_batches(start_offset, end_offset, NO_LEADER_EPOCH)
    offsets = rows.column("offset").to_numpy()
    if offsets[0] < start_offset or offsets[-1] >= end_offset:
        raise ValueError(
            f"rows [{offsets[0]}, {offsets[-1]}] are not within [{start_offset}, {end_offset})"
        )
    cuts = [0, *(np.flatnonzero(np.diff(offsets) > WIDE_GAP) + 1).tolist(), len(offsets)]
    batches: list[EncodedBatch] = []
    for first, behind in pairwise(cuts):
        start = int(offsets[first]) if first else start_offset
        end = int(offsets[behind]) if behind < len(offsets) else end_offset
        made = _without_wide_gaps(rows.slice(first, behind - first), start, end, batch_bytes_max)
        batches += [replace(batch, first_row=batch.first_row + first) for batch in made]
    return batches


def _without_wide_gaps(
    rows: pa.RecordBatch, start_offset: int, end_offset: int, batch_bytes_max: int
) -> list[EncodedBatch]:
    """Rows that have no wide gap but before the first and behind the last one."""
    columns = _log_columns(rows)
    first_offset = int(columns.offsets[0])
    lead: list[EncodedBatch] = []
    if first_offset - start_offset >= WIDE_GAP:
        lead = _empty_batches(start_offset, first_offset, int(columns.epochs[0]))
        start_offset = first_offset
    buffer, table = _write(columns, start_offset, batch_bytes_max, BATCH_ROWS_MAX, True)
    return lead + _seal_log(buffer, table, columns, end_offset)


def encode_rows(
    *,
    key: pa.Array | None,
    value: pa.Array | None,
    timestamps_ms: pa.Array | int,
    headers: pa.Array | None = None,
    compression: str | None = None,
    batch_bytes_max: int = BATCH_BYTES_MAX,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    rows_max: int | None = None,
) -> list[EncodedBatch]:
    """A producer's batches of one partition's rows, each with base offset 0.

    `key`, `value`: binary or string arrays, small or large; None: all null. `timestamps_ms`: an
    int64 array, or one value for all rows. Sequences continue from `base_sequence` and wrap at
    2**31 (KIP-98). A row larger than `batch_bytes_max` gets a batch of its own. `compression`:
    gzip, snappy, lz4, zstd or None.
    """
    given: list[Any] = [a for a in (key, value, headers) if a is not None]
    if not isinstance(timestamps_ms, int):
        given.append(timestamps_ms)
    count = len(given[0]) if given else 0
    if not count:
        return []
    if isinstance(timestamps_ms, int):
        times_ms = np.full(count, timestamps_ms, np.int64)
    else:
        times_ms = numbers(timestamps_ms, NO_TIMESTAMP, np.int64)
    lists, header_key, header_value = header_lists(headers)
    zeros = np.zeros(count, np.int64)
    columns = _Columns(
        _EMPTY, times_ms, zeros.astype(np.uint8), zeros,
        binary(key, count), binary(value, count), lists, header_key, header_value, ABSENT,
    )  # fmt: skip
    shape = _Shape(
        Compression.parse(compression),
        TRANSACTIONAL_MASK if transactional else 0,
        producer_id,
        producer_epoch,
        base_sequence,
    )
    rows_cap = rows_max or BATCH_ROWS_MAX
    buffer, table = _write(columns, 0, batch_bytes_max, rows_cap, False)
    return _seal_produced(buffer, table, columns, shape)


def warm_up() -> None:
    """Compile the encoding kernels, or load them from numba's cache. Call it at process start."""
    one = pa.array([b"v"], pa.binary())
    for headers in (None, pa.array([[{"key": "k", "value": b"v"}]], HEADERS)):
        encode_rows(key=None, value=one, timestamps_ms=0, headers=headers)


def _write(
    columns: _Columns, first_base: int, bytes_max: int, rows_max: int, is_log: bool
) -> tuple[memoryview, list[list[int]]]:
    count = len(columns.times_ms)
    sizes = np.empty(count, np.int64)
    k.measure_headers(
        *columns.lists, *columns.header_key[:2], *columns.header_value[:2], *columns.raw[:2], sizes
    )
    k.measure_fields(*columns.key[:2], *columns.value[:2], sizes)
    bodies = np.empty(count, np.int64)
    table = np.empty((count, k.TABLE_WIDTH), np.int64)
    batches = k.plan(
        columns.offsets, columns.times_ms, columns.append_time, columns.epochs, sizes,
        first_base, not is_log, bytes_max, rows_max, bodies, table,
    )  # fmt: skip
    table = table[:batches]
    out = np.empty(int(table[:, k.AT_BYTES].sum()), np.uint8)
    k.write(
        out, table, columns.offsets, columns.times_ms, columns.append_time, bodies, not is_log,
        columns.key, columns.value, columns.lists, columns.header_key, columns.header_value,
        columns.raw,
    )  # fmt: skip
    return memoryview(out.data), table.tolist()


def _seal_log(
    buffer: memoryview, table: list[list[int]], columns: _Columns, end_offset: int
) -> list[EncodedBatch]:
    """Set the headers of batches from a log table; each reaches up to the next one's base
    offset."""
    sealed: list[EncodedBatch] = []
    at = 0
    for i, (first, last, size_bytes, base, newest) in enumerate(table):
        reach = table[i + 1][k.AT_BASE_OFFSET] if i + 1 < len(table) else end_offset
        next_offset = reach
        own_end = int(columns.offsets[last - 1]) + 1
        if reach - own_end >= WIDE_GAP:
            next_offset = own_end  # this batch ends at its last row, and empty ones follow
        epoch = int(columns.epochs[first])
        view = buffer[at : at + size_bytes]
        HEADER.pack_into(
            view, 0, base, size_bytes - LOG_OVERHEAD_BYTES, epoch, MAGIC_V2, 0,
            TIMESTAMP_TYPE_MASK if columns.append_time[first] else 0,
            next_offset - base - 1, int(columns.times_ms[first]), newest, -1, -1, -1, last - first,
        )  # fmt: skip
        _set_crc(view)
        sealed.append(EncodedBatch(view, base, next_offset, last - first, newest, first))
        sealed.extend(_empty_batches(next_offset, reach, epoch))
        at += size_bytes
    return sealed


def _seal_produced(
    buffer: memoryview, table: list[list[int]], columns: _Columns, shape: _Shape
) -> list[EncodedBatch]:
    sealed = []
    at = 0
    for first, last, size_bytes, _, newest in table:
        view = buffer[at : at + size_bytes]
        at += size_bytes
        if shape.codec:
            packed = compress(shape.codec, view[HEADER_BYTES:])
            whole = memoryview(bytearray(HEADER_BYTES + len(packed)))
            whole[HEADER_BYTES:] = packed
            view = whole
        sequence = shape.base_sequence
        if sequence >= 0:
            sequence = (sequence + first) & SEQUENCE_MASK
        HEADER.pack_into(
            view, 0, 0, len(view) - LOG_OVERHEAD_BYTES, NO_LEADER_EPOCH, MAGIC_V2, 0,
            shape.attributes | shape.codec, last - first - 1, int(columns.times_ms[first]), newest,
            shape.producer_id, shape.producer_epoch, sequence, last - first,
        )  # fmt: skip
        _set_crc(view)
        sealed.append(EncodedBatch(view, 0, last - first, last - first, newest, first))
    return sealed


def _empty_batches(start_offset: int, end_offset: int, epoch: int) -> list[EncodedBatch]:
    """Batches without records that cover [start, end), like those of Kafka's log cleaner."""
    batches = []
    while start_offset < end_offset:
        next_offset = min(end_offset, start_offset + OFFSET_SPAN_MAX)
        view = memoryview(bytearray(HEADER_BYTES))
        HEADER.pack_into(
            view, 0, start_offset, HEADER_BYTES - LOG_OVERHEAD_BYTES, epoch, MAGIC_V2, 0, 0,
            next_offset - start_offset - 1, NO_TIMESTAMP, NO_TIMESTAMP, -1, -1, -1, 0,
        )  # fmt: skip
        _set_crc(view)
        batches.append(EncodedBatch(view, start_offset, next_offset, 0, NO_TIMESTAMP, 0))
        start_offset = next_offset
    return batches


def _set_crc(view: memoryview) -> None:
    view[AT_ATTRIBUTES - 4 : AT_ATTRIBUTES] = compute_crc(view, 0, len(view)).to_bytes(4, "big")


def _log_columns(rows: pa.RecordBatch) -> _Columns:
    names = set(rows.schema.names)
    times_us = rows.column("timestamp").cast(pa.timestamp("us", tz="UTC")).view(pa.int64())
    times_ms = numbers(times_us, NO_TIMESTAMP * 1000, np.int64) // 1000
    if "timestamp_raw" in names and rows.column("timestamp_raw").null_count < rows.num_rows:
        raw_times = rows.column("timestamp_raw")
        is_raw = raw_times.is_valid().to_numpy(zero_copy_only=False)
        times_ms = np.where(is_raw, numbers(raw_times, 0, np.int64), times_ms)
    lists, header_key, header_value = header_lists(rows.column("headers"))
    raw = ABSENT
    if "headers_raw" in names and rows.column("headers_raw").null_count < rows.num_rows:
        raw = binary(rows.column("headers_raw"), rows.num_rows)
    return _Columns(
        np.ascontiguousarray(rows.column("offset").to_numpy()),
        np.ascontiguousarray(times_ms),
        numbers(rows.column("timestamp_type"), 0, np.uint8),
        numbers(rows.column("leader_epoch"), NO_LEADER_EPOCH, np.int64),
        binary(rows.column("key"), rows.num_rows),
        binary(rows.column("value"), rows.num_rows),
        lists, header_key, header_value, raw,
    )  # fmt: skip
