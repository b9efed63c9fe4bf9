"""Encodes Arrow columns as a producer's record batches by numpy and Arrow's own functions.

`headwater.columnar.encode` does it with compiled kernels, whose code takes a second to load: too
long for the first table of a process. Here numpy writes the bytes between the blobs, and one join
of Arrow's copies both.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.columnar.buffers import numbers
from headwater.records.batch import HEADER_BYTES
from headwater.records.builder import NO_TIMESTAMP, BatchBuilder
from headwater.records.compression import Compression
from headwater.records.varint import NULL_LENGTH, varint_of

BATCH_ROWS_MAX = 1 << 20
"""So that an offset delta takes three bytes at most."""
_FIXED_BYTES_MAX = 10
"""The record's length and an offset delta at their widest, attributes, header count."""
_BLOB = pa.large_binary()
_Field = bytes | Any
"""Bytes that each record has, or an array of int64: a varint for each record."""


def produced_batches(
    *,
    key: pa.Array | None,
    value: pa.Array,
    timestamps_ms: pa.Array | int,
    compression: str | None,
    batch_bytes_max: int,
) -> Iterator[tuple[bytearray, int]]:
    """(batch, number of records) of one partition's rows, without headers, with base offset 0.

    `key`, `value`: binary or string arrays, small or large; key None: all null. `timestamps_ms`: an
    int64 array, or one value for all rows. A row larger than `batch_bytes_max` gets a batch of its
    own. `compression`: gzip, snappy, lz4, zstd or None.
    """
    if not len(value):
        return
    codec = Compression.parse(compression)
    values, value_sizes = _blobs(value)
    keys, key_sizes = (None, None) if key is None else _blobs(key)
    if isinstance(timestamps_ms, int):
        times = np.full(1, timestamps_ms, np.int64)
    else:
        times = numbers(timestamps_ms, NO_TIMESTAMP, np.int64)
    bodies = 3 + _field_bytes(value_sizes)
    bodies += 1 if key_sizes is None else _field_bytes(key_sizes)
    if keys is None and len(times) == 1 and (size := _one_size(value_sizes)) > 0:
        for records, count in _even_payloads(values, size, batch_bytes_max):
            yield _built(records, count, times, codec), count
        return
    span = int(times.max()) - int(times.min())
    borders = _borders(bodies + _FIXED_BYTES_MAX + _width(_zigzag(span)), batch_bytes_max)
    firsts, counts = borders[:-1], np.diff(borders)
    places = np.arange(len(value)) - np.repeat(firsts, counts)
    ages = np.zeros(1, np.int64) if len(times) == 1 else times - np.repeat(times[firsts], counts)
    bodies += _width(_zigzag(places)) + _width(_zigzag(ages)) - 1
    lead: list[_Field] = [bodies, b"\x00", ages, places]
    if keys is None:
        parts = [_joined(len(value), [*lead, b"\x01", value_sizes]), values]
    else:
        parts = [_joined(len(value), [*lead, key_sizes]), keys]
        parts += [_joined(len(value), [value_sizes]), values]
    whole = pc.binary_join_element_wise(*parts, pa.scalar(b"\x00", _BLOB), pa.scalar(b"", _BLOB))
    ends = np.frombuffer(whole.buffers()[1], np.int64)
    payload = memoryview(whole.buffers()[2])
    for first, last in zip(borders[:-1].tolist(), borders[1:].tolist(), strict=True):
        inside = times if len(times) == 1 else times[first:last]
        records = payload[int(ends[first]) : int(ends[last])]
        yield _built(records, last - first, inside, codec), last - first


def _built(records: memoryview, count: int, times: Any, codec: Compression) -> bytearray:
    """The batch with these records."""
    batch = BatchBuilder()
    batch.count = count
    batch.base_timestamp, batch.max_timestamp = int(times[0]), int(times.max())
    return batch.build(compression=codec, payload=records)


def _one_size(sizes: Any) -> int:
    """The size that every blob has; -1 where they differ, or one is null."""
    size = int(sizes[0])
    return size if bool((sizes == size).all()) else -1


def _even_payloads(values: Any, size: int, bytes_max: int) -> Iterator[tuple[memoryview, int]]:
    """(records, their number) of batches of keyless values of one size and time.

    Batches differ in their values alone: those are put between the other bytes, which are written
    once. So the records are good until the next batch is asked for."""
    start = int(np.frombuffer(values.buffers()[1], np.int64)[values.offset])
    blobs = np.frombuffer(values.buffers()[2], np.uint8, len(values) * size, start)
    rows = blobs.reshape(len(values), size)
    tail = NULL_LENGTH + varint_of(size)
    widest = _FIXED_BYTES_MAX + 2 + len(tail) + size
    step = min(max(1, (bytes_max - HEADER_BYTES) // widest), BATCH_ROWS_MAX, len(rows))
    runs = _even_runs(step, size, tail)
    whole: Any = np.concatenate([run.reshape(-1) for run in runs])
    for first in range(0, len(rows), step):
        batch = rows[first : first + step]
        at = taken = 0
        for run in runs:
            part = batch[taken : taken + len(run)]
            width = run.shape[1]
            end = at + len(part) * width
            whole[at:end].reshape(-1, width)[:, -1 - size : -1] = part
            at, taken = end, taken + len(part)
        yield memoryview(whole)[:at], len(batch)


def _even_runs(count: int, size: int, tail: bytes) -> list[Any]:
    """Records without values from offset 0 on: an array for each width of the offset's varint."""
    runs, at = [], 0
    while at < count:
        width = len(varint_of(at))
        end = min(count, 1 << (7 * width - 1))
        runs.append(_even_records(at, end, width, size, tail))
        at = end
    return runs


def _even_records(at: int, end: int, width: int, size: int, tail: bytes) -> Any:
    """The records of these offsets, whose varints have this width, with room for the values."""
    body = 2 + width + len(tail) + size + 1
    head = varint_of(body) + b"\x00\x00"
    inside = len(head) + width + len(tail)
    out = np.empty((end - at, inside + size + 1), np.uint8)
    out[:, : len(head)] = np.frombuffer(head, np.uint8)
    bits = np.arange(at, end) << 1
    for index in range(width):
        more = 0x80 if index + 1 < width else 0
        out[:, len(head) + index] = ((bits >> (7 * index)) & 0x7F) | more
    out[:, len(head) + width : inside] = np.frombuffer(tail, np.uint8)
    out[:, -1] = 0
    return out


def _blobs(array: Any) -> tuple[Any, Any]:
    """The column without nulls, and the size of each row, -1 where it is null."""
    wide = array.cast(_BLOB)
    ends = np.frombuffer(wide.buffers()[1], np.int64)
    sizes = np.diff(ends[wide.offset : wide.offset + len(wide) + 1])
    if wide.null_count:
        sizes = np.where(wide.is_valid().to_numpy(zero_copy_only=False), sizes, -1)
        wide = wide.fill_null(b"")
    return wide, sizes


def _borders(sizes: Any, bytes_max: int) -> Any:
    """The first row of each batch, and the number of rows."""
    ends = np.cumsum(sizes)
    borders = [0]
    while borders[-1] < len(sizes):
        first = borders[-1]
        start = int(ends[first - 1]) if first else 0
        last = int(np.searchsorted(ends, start + bytes_max - HEADER_BYTES, side="right"))
        borders.append(min(max(last, first + 1), first + BATCH_ROWS_MAX))
    return np.array(borders)


def _field_bytes(sizes: Any) -> Any:
    """What a blob takes with its length; one byte where it is null."""
    return np.maximum(sizes, 0) + _width(_zigzag(sizes))


def _zigzag(number: Any) -> Any:
    signed = np.asarray(number, np.int64)
    return ((signed << 1) ^ (signed >> 63)).view(np.uint64)


def _width(bits: Any) -> Any:
    """How many bytes the varint of each takes; one number where that is the same for all."""
    low, high = int(bits.min()), int(bits.max())
    widths: Any = 1
    for shift in range(7, 64, 7):
        limit = 1 << shift
        if high < limit:
            break
        widths = widths + (1 if low >= limit else (bits >= np.uint64(limit)).astype(np.int64))
    return widths


def _joined(rows: int, fields: list[_Field]) -> Any:
    """A binary column: in each row the fields one behind the other."""
    bits = [None if isinstance(field, bytes) else _zigzag(field) for field in fields]
    widths: list[Any] = [
        len(field) if row is None else _width(row) for field, row in zip(fields, bits, strict=True)
    ]
    ends = np.zeros(rows + 1, np.int64)
    np.cumsum(np.broadcast_to(sum(widths), rows), out=ends[1:])
    out = np.empty(int(ends[-1]), np.uint8)
    at = ends[:-1].copy()
    for field, row, width in zip(fields, bits, widths, strict=True):
        if row is None:
            for index, byte in enumerate(field):
                out[at + index] = byte
        else:
            _put_varints(out, at, row, width)
        at += width
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(out)]
    return pa.Array.from_buffers(_BLOB, rows, buffers)


def _put_varints(out: Any, at: Any, bits: Any, width: Any) -> None:
    """Write the varint of each of `bits` at its place. All have one `width`, or one each."""
    for index in range(int(np.max(width))):
        septet = (bits >> np.uint64(7 * index)).astype(np.uint8) & np.uint8(0x7F)
        if isinstance(width, int):
            out[at + index] = septet | np.uint8(0x80 if index + 1 < width else 0)
        else:
            chosen = width > index
            more = np.where(width > index + 1, np.uint8(0x80), np.uint8(0))
            out[at[chosen] + index] = (septet | more)[chosen]
