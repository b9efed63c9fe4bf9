"""Compiled kernels that decode record batches: byte arrays in, numpy columns out.

The bytes come from the network, so every position is checked against the batch's end before it is
read. Records have KIP-98's varint fields: length, attributes, timestamp delta, offset delta, key,
value, headers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headwater.columnar.jit import kernel

HEADER_BYTES = 61
# Columns of the batch table that `scan` fills, one row per whole batch.
AT_POSITION = 0
AT_SIZE_BYTES = 1
AT_BASE_OFFSET = 2
AT_NEXT_OFFSET = 3
AT_LEADER_EPOCH = 4
AT_ATTRIBUTES = 5
AT_BASE_TIMESTAMP = 6
AT_MAX_TIMESTAMP = 7
AT_RECORDS = 8
AT_KIND = 9
AT_BODY_BEGIN = 10
AT_BODY_END = 11
TABLE_WIDTH = 12

KIND_DATA = 0
KIND_SKIP = 1

# Error results of `scan` and `parse`.
BAD_LENGTH = -1
BAD_MAGIC = -2
BAD_COUNT = -3

MICROSECONDS_MS_MAX = ((1 << 63) - 1) // 1000
"""Timestamps of more ms, positive or negative, overflow int64 microseconds."""

Array = Any  # a numpy array: numba infers the type
Int64 = Any  # int for Python, np.int64 for the kernels


@kernel
def read_int(data: Array, at: int, width: int) -> Int64:
    """A big-endian two's complement integer of `width` bytes."""
    value = np.int64(data[at])
    if value >= 128:
        value -= 256
    for i in range(1, width):
        value = (value << 8) | np.int64(data[at + i])
    return value


@kernel
def read_varint(data: Array, at: int, end: int) -> tuple[Int64, Int64]:
    """(zigzag value, next position); the position is -1 if it is incomplete or too long."""
    if at >= end:
        return 0, -1
    byte = np.uint64(data[at])
    at += 1
    value = byte & np.uint64(0x7F)
    shift = np.uint64(7)
    while byte & np.uint64(0x80):
        if at >= end or shift > np.uint64(63):
            return 0, -1
        byte = np.uint64(data[at])
        at += 1
        value |= (byte & np.uint64(0x7F)) << shift
        shift += np.uint64(7)
    return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1)), at


@kernel
def read_blob(data: Array, at: int, end: int) -> tuple[Int64, Int64, Int64]:
    """(position, size or -1 for null, next position) of a blob; the last is -1 if it is
    incomplete."""
    size, at = read_varint(data, at, end)
    if at < 0 or size > end - at:
        return 0, 0, -1
    return at, size, at + max(size, 0)


@kernel
def scan(data: Array, aborted_ids: Array, aborted_firsts: Array, table: Array) -> int:
    """Fill `table` with the whole batches; their number, or BAD_*.

    `aborted_*` are sorted by first offset. A producer's transaction is aborted from its first
    offset to its marker (KIP-98, read_committed). Its batches are skipped, like control batches.
    """
    is_open = np.zeros(len(aborted_ids), np.uint8)
    upcoming = 0
    at = 0
    count = 0
    end = len(data)
    while end - at >= HEADER_BYTES:
        length = read_int(data, at + 8, 4)
        if length < HEADER_BYTES - 12:
            return BAD_LENGTH
        size_bytes = length + 12
        if at + size_bytes > end:
            break
        if data[at + 16] != 2:
            return BAD_MAGIC
        base_offset = read_int(data, at, 8)
        next_offset = base_offset + read_int(data, at + 23, 4) + 1
        attributes = read_int(data, at + 21, 2)
        producer_id = read_int(data, at + 43, 8)
        while upcoming < len(aborted_ids) and aborted_firsts[upcoming] < next_offset:
            is_open[upcoming] = 1
            upcoming += 1
        kind = KIND_DATA
        if attributes & 0x20:
            kind = KIND_SKIP
            for i in range(upcoming):
                if is_open[i] and aborted_ids[i] == producer_id:
                    is_open[i] = 0
                    break
        elif attributes & 0x10:
            for i in range(upcoming):
                if is_open[i] and aborted_ids[i] == producer_id:
                    kind = KIND_SKIP
                    break
        row = table[count]
        row[AT_POSITION] = at
        row[AT_SIZE_BYTES] = size_bytes
        row[AT_BASE_OFFSET] = base_offset
        row[AT_NEXT_OFFSET] = next_offset
        row[AT_LEADER_EPOCH] = read_int(data, at + 12, 4)
        row[AT_ATTRIBUTES] = attributes
        row[AT_BASE_TIMESTAMP] = read_int(data, at + 27, 8)
        row[AT_MAX_TIMESTAMP] = read_int(data, at + 35, 8)
        row[AT_RECORDS] = read_int(data, at + 57, 4)
        row[AT_KIND] = kind
        row[AT_BODY_BEGIN] = at + HEADER_BYTES
        row[AT_BODY_END] = at + size_bytes
        count += 1
        at += size_bytes
    return count


@kernel
def parse(
    data: Array,
    table: Array,
    start_offset: int,
    end_offset: int,
    fixed: Array,
    places: Array,
    bad_at: Array,
) -> int:
    """Parse every record of the data batches in `table`; the number of rows, or BAD_COUNT.

    Per row, `fixed` gets offset, timestamp in ms, timestamp type and leader epoch; `places` gets
    position and length of key and value (-1: null), and begin and end of the headers, which are
    equal for a record without headers. On failure `bad_at[0]` is the batch's base offset.
    """
    rows = 0
    for b in range(len(table)):
        batch = table[b]
        if batch[AT_KIND] != KIND_DATA:
            continue
        at = batch[AT_BODY_BEGIN]
        body_end = batch[AT_BODY_END]
        base_offset = batch[AT_BASE_OFFSET]
        base_timestamp = batch[AT_BASE_TIMESTAMP]
        is_append_time = (batch[AT_ATTRIBUTES] & 0x08) != 0
        bad_at[0] = base_offset
        for _ in range(batch[AT_RECORDS]):
            length, at = read_varint(data, at, body_end)
            if at < 0 or length < 0 or length > body_end - at:
                return BAD_COUNT
            end = at + length
            timestamp_delta, at = read_varint(data, at + 1, end)
            if at < 0:
                return BAD_COUNT
            offset_delta, at = read_varint(data, at, end)
            if at < 0:
                return BAD_COUNT
            key_at, key_bytes, at = read_blob(data, at, end)
            if at < 0:
                return BAD_COUNT
            value_at, value_bytes, at = read_blob(data, at, end)
            if at < 0 or at >= end:
                return BAD_COUNT
            offset = base_offset + offset_delta
            if start_offset <= offset < end_offset:
                if is_append_time:
                    timestamp = batch[AT_MAX_TIMESTAMP]
                else:
                    timestamp = base_timestamp + timestamp_delta
                fixed[0, rows] = offset
                fixed[1, rows] = timestamp
                fixed[2, rows] = 1 if is_append_time else 0
                fixed[3, rows] = batch[AT_LEADER_EPOCH]
                places[0, rows] = key_at
                places[1, rows] = key_bytes
                places[2, rows] = value_at
                places[3, rows] = value_bytes
                places[4, rows] = at
                places[5, rows] = at if end - at == 1 and data[at] == 0 else end
                rows += 1
            at = end
        if at != body_end:
            return BAD_COUNT
    return rows


@kernel
def copy_bytes(out: Array, to: Int64, data: Array, begin: Int64, size: Int64) -> None:
    """Copy data[begin:begin + size] to `out` at `to`; none of the three is negative.

    With unsigned indexes the compiler makes a vector loop, ten times as fast: signed ones may count
    from the end, which each access would have to check.
    """
    target = np.uint64(to)
    source = np.uint64(begin)
    count = np.uint64(size)
    i = np.uint64(0)
    while i < count:
        out[target + i] = data[source + i]
        i += np.uint64(1)


@kernel
def copy_binary(
    data: Array, starts: Array, sizes: Array, offsets: Array, validity: Array, out: Array
) -> int:
    """Copy one binary column from `data`; the number of nulls. `validity` must be zero before."""
    at = 0
    nulls = 0
    offsets[0] = 0
    for i in range(len(starts)):
        size = sizes[i]
        if size < 0:
            nulls += 1
        else:
            validity[i >> 3] |= np.uint8(1 << (i & 7))
            copy_bytes(out, at, data, starts[i], size)
            at += size
        offsets[i + 1] = at
    return nulls


@kernel
def is_utf8(data: Array, at: int, end: int) -> bool:  # noqa: C901 - RFC 3629's table
    """Whether the bytes are well-formed UTF-8 (RFC 3629: no overlong forms, no surrogates)."""
    while at < end:
        byte = data[at]
        if byte < 0x80:
            at += 1
            continue
        low = np.uint8(0x80)
        high = np.uint8(0xBF)
        if 0xC2 <= byte <= 0xDF:
            more = 1
        elif 0xE0 <= byte <= 0xEF:
            more = 2
            if byte == 0xE0:
                low = np.uint8(0xA0)
            elif byte == 0xED:
                high = np.uint8(0x9F)
        elif 0xF0 <= byte <= 0xF4:
            more = 3
            if byte == 0xF0:
                low = np.uint8(0x90)
            elif byte == 0xF4:
                high = np.uint8(0x8F)
        else:
            return False
        if at + more >= end:
            return False
        if not low <= data[at + 1] <= high:
            return False
        for i in range(2, more + 1):
            if not 0x80 <= data[at + i] <= 0xBF:
                return False
        at += more + 1
    return True


@kernel
def measure_headers(
    data: Array, places: Array, keep_bad: bool, counts: Array, is_bad: Array, totals: Array
) -> int:
    """Count the headers per row in `counts`, and in `totals` headers, key bytes and value bytes.

    Returns -1, or the index of a row that does not parse. A row with a key that is not UTF-8 is
    marked in `is_bad`; without `keep_bad` its headers count as none.
    """
    for i in range(len(counts)):
        at = places[4, i]
        end = places[5, i]
        if at == end:
            continue
        count, at = read_varint(data, at, end)
        if at < 0 or count < 0:
            return i
        key_total = 0
        value_total = 0
        for _ in range(count):
            key_bytes, at = read_varint(data, at, end)
            if at < 0 or key_bytes < 0 or key_bytes > end - at:
                return i
            if not is_utf8(data, at, at + key_bytes):
                is_bad[i] = 1
            at += key_bytes
            key_total += key_bytes
            value_bytes, at = read_varint(data, at, end)
            if at < 0 or value_bytes > end - at:
                return i
            if value_bytes > 0:
                at += value_bytes
                value_total += value_bytes
        if at != end:
            return i
        counts[i] = count
        if is_bad[i] and not keep_bad:
            counts[i] = 0
            continue
        totals[0] += count
        totals[1] += key_total
        totals[2] += value_total
    return -1


@kernel
def copy_headers(
    data: Array,
    places: Array,
    counts: Array,
    is_bad: Array,
    list_offsets: Array,
    list_validity: Array,
    key_offsets: Array,
    keys: Array,
    value_offsets: Array,
    value_validity: Array,
    values: Array,
) -> int:
    """Fill the buffers of the headers column; the number of null values. The bytes are checked."""
    header = 0
    key_to = 0
    value_to = 0
    nulls = 0
    for i in range(len(counts)):
        if counts[i] > 0:
            list_validity[i >> 3] |= np.uint8(1 << (i & 7))
            end = places[5, i]
            _, at = read_varint(data, places[4, i], end)
            for _ in range(counts[i]):
                key_bytes, at = read_varint(data, at, end)
                replace = is_bad[i] and not is_utf8(data, at, at + key_bytes)
                for j in range(key_bytes):
                    byte = data[at + j]
                    keys[key_to + j] = 63 if replace and byte >= 0x80 else byte
                at += key_bytes
                key_to += key_bytes
                value_bytes, at = read_varint(data, at, end)
                if value_bytes < 0:
                    nulls += 1
                else:
                    value_validity[header >> 3] |= np.uint8(1 << (header & 7))
                    copy_bytes(values, value_to, data, at, value_bytes)
                    at += value_bytes
                    value_to += value_bytes
                header += 1
                key_offsets[header] = key_to
                value_offsets[header] = value_to
        list_offsets[i + 1] = header
    return nulls
