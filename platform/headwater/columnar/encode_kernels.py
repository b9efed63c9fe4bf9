"""Compiled kernels that encode record batches: first sizes and batch borders, then the bytes."""

from __future__ import annotations

from typing import Any

import numpy as np

from headwater.columnar.decode_kernels import HEADER_BYTES, copy_bytes
from headwater.columnar.jit import kernel

# Columns of the batch table that `plan` fills.
AT_FIRST_ROW = 0
AT_LAST_ROW = 1
AT_BYTES = 2
AT_BASE_OFFSET = 3
AT_MAX_TIMESTAMP = 4
TABLE_WIDTH = 5

OFFSET_DELTA_MAX = (1 << 31) - 1

Array = Any  # a numpy array: numba infers the type
Int64 = Any  # int for Python, np.int64 for the kernels


@kernel
def varint_size(value: Int64) -> Int64:
    """The size of the zigzag varint of `value`."""
    bits = np.uint64((value << 1) ^ (value >> 63))
    size = 1
    while bits >= np.uint64(0x80):
        bits >>= np.uint64(7)
        size += 1
    return size


@kernel
def put_varint(out: Array, at: int, value: Int64) -> Int64:
    """Write the zigzag varint of `value`; the next position."""
    bits = np.uint64((value << 1) ^ (value >> 63))
    while bits >= np.uint64(0x80):
        out[at] = np.uint8((bits & np.uint64(0x7F)) | np.uint64(0x80))
        at += 1
        bits >>= np.uint64(7)
    out[at] = np.uint8(bits)
    return at + 1


@kernel
def put_bytes(out: Array, at: int, data: Array, begin: int, end: int) -> Int64:
    """Copy data[begin:end] to `at`; the next position."""
    copy_bytes(out, at, data, begin, end - begin)
    return at + end - begin


@kernel
def field_size(i: int, valid: Array, offsets: Array) -> Int64:
    """The size of row i of a binary column as a record field: varint length and bytes (null: 1)."""
    if len(valid) > 0 and not valid[i]:
        return 1
    size = offsets[i + 1] - offsets[i]
    return varint_size(size) + size


@kernel
def put_field(out: Array, at: int, i: int, valid: Array, offsets: Array, data: Array) -> Int64:
    """Write row i of a binary column as a record field; null has length -1 (KIP-98)."""
    if len(valid) > 0 and not valid[i]:
        return put_varint(out, at, -1)
    at = put_varint(out, at, offsets[i + 1] - offsets[i])
    return put_bytes(out, at, data, offsets[i], offsets[i + 1])


@kernel
def measure_headers(
    list_valid: Array,
    list_offsets: Array,
    key_valid: Array,
    key_offsets: Array,
    value_valid: Array,
    value_offsets: Array,
    raw_valid: Array,
    raw_offsets: Array,
    sizes: Array,
) -> None:
    """The size of each row's headers with their count. Raw headers (keys that are not UTF-8) take
    precedence over decoded ones."""
    for i in range(len(sizes)):
        if len(raw_offsets) > 1 and (len(raw_valid) == 0 or raw_valid[i]):
            sizes[i] = raw_offsets[i + 1] - raw_offsets[i]
            continue
        if len(list_offsets) < 2 or (len(list_valid) > 0 and not list_valid[i]):
            sizes[i] = 1
            continue
        first = list_offsets[i]
        last = list_offsets[i + 1]
        size = varint_size(last - first)
        for h in range(first, last):
            size += field_size(h, key_valid, key_offsets)
            size += field_size(h, value_valid, value_offsets)
        sizes[i] = size


@kernel
def plan(
    offsets: Array,
    times_ms: Array,
    append_time: Array,
    epochs: Array,
    fixed_sizes: Array,
    first_base: Int64,
    are_offsets_local: bool,
    batch_bytes_max: int,
    batch_rows_max: int,
    body_sizes: Array,
    table: Array,
) -> Int64:
    """Split rows into batches: fill `table` and `body_sizes`; the number of batches.

    A batch ends before a row with another leader epoch, timestamp type or append time, before an
    offset delta above int32, or when it is full. With `are_offsets_local` (a producer) offset
    deltas count rows from 0.
    """
    count = 0
    n = len(times_ms)
    first = 0
    base = first_base
    size = HEADER_BYTES
    newest = times_ms[0]
    for i in range(n):
        is_first = i == first
        offset = np.int64(i - first) if are_offsets_local else offsets[i]
        delta = offset - base
        time_delta = 0 if append_time[i] else times_ms[i] - times_ms[first]
        body = 1 + varint_size(time_delta) + varint_size(delta) + fixed_sizes[i]
        total = varint_size(body) + body
        if not is_first:
            is_other = (
                epochs[i] != epochs[first]
                or append_time[i] != append_time[first]
                or (append_time[i] and times_ms[i] != times_ms[first])
                or delta > OFFSET_DELTA_MAX
                or size + total > batch_bytes_max
                or i - first >= batch_rows_max
            )
            if is_other:
                table[count, AT_FIRST_ROW] = first
                table[count, AT_LAST_ROW] = i
                table[count, AT_BYTES] = size
                table[count, AT_BASE_OFFSET] = base
                table[count, AT_MAX_TIMESTAMP] = newest
                count += 1
                first = i
                base = np.int64(0) if are_offsets_local else offsets[i]
                newest = times_ms[i]
                size = HEADER_BYTES
                body = 3 + fixed_sizes[i]
                total = varint_size(body) + body
        body_sizes[i] = body
        size += total
        if times_ms[i] > newest:
            newest = times_ms[i]
    table[count, AT_FIRST_ROW] = first
    table[count, AT_LAST_ROW] = n
    table[count, AT_BYTES] = size
    table[count, AT_BASE_OFFSET] = base
    table[count, AT_MAX_TIMESTAMP] = newest
    return count + 1


@kernel
def measure_fields(
    key_valid: Array,
    key_offsets: Array,
    value_valid: Array,
    value_offsets: Array,
    sizes: Array,
) -> None:
    """Add the sizes of key and value to `sizes`, which holds those of the headers."""
    for i in range(len(sizes)):
        sizes[i] += field_size(i, key_valid, key_offsets)
        sizes[i] += field_size(i, value_valid, value_offsets)


@kernel
def write(
    out: Array,
    table: Array,
    offsets: Array,
    times_ms: Array,
    append_time: Array,
    body_sizes: Array,
    are_offsets_local: bool,
    key: tuple[Array, Array, Array],
    value: tuple[Array, Array, Array],
    lists: tuple[Array, Array],
    header_key: tuple[Array, Array, Array],
    header_value: tuple[Array, Array, Array],
    raw: tuple[Array, Array, Array],
) -> None:
    """Write the records of every batch to `out`, after 61 bytes for the batch's header."""
    at = 0
    for b in range(len(table)):
        first = table[b, AT_FIRST_ROW]
        base = table[b, AT_BASE_OFFSET]
        at += HEADER_BYTES
        for i in range(first, table[b, AT_LAST_ROW]):
            at = put_varint(out, at, body_sizes[i])
            out[at] = 0
            at = put_varint(out, at + 1, 0 if append_time[i] else times_ms[i] - times_ms[first])
            at = put_varint(out, at, i - first if are_offsets_local else offsets[i] - base)
            at = put_field(out, at, i, key[0], key[1], key[2])
            at = put_field(out, at, i, value[0], value[1], value[2])
            if len(raw[1]) > 1 and (len(raw[0]) == 0 or raw[0][i]):
                at = put_bytes(out, at, raw[2], raw[1][i], raw[1][i + 1])
            elif len(lists[1]) < 2 or (len(lists[0]) > 0 and not lists[0][i]):
                at = put_varint(out, at, 0)
            else:
                at = put_varint(out, at, lists[1][i + 1] - lists[1][i])
                for h in range(lists[1][i], lists[1][i + 1]):
                    at = put_field(out, at, h, header_key[0], header_key[1], header_key[2])
                    at = put_field(out, at, h, header_value[0], header_value[1], header_value[2])
