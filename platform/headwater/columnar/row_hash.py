"""A 64-bit hash per record, for checksums that do not depend on the order. Version 1, fixed for
ever.

Words of 8 bytes (little-endian, the last one padded with zeros) are folded by
h = (h ^ word) * P; h ^= h >> 32, and finished as MurmurHash3 does. Per row: partition, offset,
timestamp in ms, key, value, headers; each blob is preceded by its length, null by -1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from headwater.columnar.buffers import ABSENT, binary, header_lists, numbers
from headwater.columnar.jit import kernel

NO_TIMESTAMP_US = -1_000

Array = Any  # a numpy array: numba infers the type
UInt64 = Any


@kernel
def fold(state: UInt64, word: UInt64) -> UInt64:
    """One step of the hash."""
    state = (state ^ np.uint64(word)) * np.uint64(0x9FB21C651E98DF25)
    return state ^ (state >> np.uint64(32))


@kernel
def fold_blob(state: UInt64, i: int, valid: Array, offsets: Array, data: Array) -> UInt64:
    """Fold row i of a binary column: its length (-1 for null), then its bytes."""
    if len(valid) > 0 and not valid[i]:
        return fold(state, np.uint64(0xFFFFFFFFFFFFFFFF))
    at = offsets[i]
    end = offsets[i + 1]
    state = fold(state, np.uint64(end - at))
    while end - at >= 8:
        word = np.uint64(0)
        for j in range(8):
            word |= np.uint64(data[at + j]) << np.uint64(8 * j)
        state = fold(state, word)
        at += 8
    if at < end:
        word = np.uint64(0)
        for j in range(end - at):
            word |= np.uint64(data[at + j]) << np.uint64(8 * j)
        state = fold(state, word)
    return state


@kernel
def hash_kernel(
    partitions: Array,
    offsets: Array,
    times_ms: Array,
    key: tuple[Array, Array, Array],
    value: tuple[Array, Array, Array],
    lists: tuple[Array, Array],
    header_key: tuple[Array, Array, Array],
    header_value: tuple[Array, Array, Array],
    raw: tuple[Array, Array, Array],
    out: Array,
) -> None:
    """Write the hash of every row to `out`."""
    for i in range(len(out)):
        state = np.uint64(0x48656164)
        state = fold(state, np.uint64(partitions[i]))
        state = fold(state, np.uint64(offsets[i]))
        state = fold(state, np.uint64(times_ms[i]))
        state = fold_blob(state, i, key[0], key[1], key[2])
        state = fold_blob(state, i, value[0], value[1], value[2])
        if len(raw[1]) > 1 and (len(raw[0]) == 0 or raw[0][i]):
            state = fold_blob(state, i, raw[0], raw[1], raw[2])
        elif len(lists[1]) < 2 or (len(lists[0]) > 0 and not lists[0][i]):
            state = fold(state, np.uint64(0))
        else:
            state = fold(state, np.uint64(lists[1][i + 1] - lists[1][i]))
            for h in range(lists[1][i], lists[1][i + 1]):
                state = fold_blob(state, h, header_key[0], header_key[1], header_key[2])
                state = fold_blob(state, h, header_value[0], header_value[1], header_value[2])
        state ^= state >> np.uint64(33)
        state *= np.uint64(0xFF51AFD7ED558CCD)
        state ^= state >> np.uint64(33)
        out[i] = state


def row_hashes(rows: pa.RecordBatch) -> Any:
    """The hash of each row as uint64. Rows have Kafka's columns or those of the log table.

    `headers`, `timestamp_raw` and `headers_raw` may be missing; they count as null then.
    """
    names = set(rows.schema.names)
    times_us = rows.column("timestamp").cast(pa.timestamp("us", tz="UTC")).view(pa.int64())
    times_ms = numbers(times_us, NO_TIMESTAMP_US, np.int64) // 1000
    if "timestamp_raw" in names and rows.column("timestamp_raw").null_count < rows.num_rows:
        raw_times = rows.column("timestamp_raw")
        is_raw = raw_times.is_valid().to_numpy(zero_copy_only=False)
        times_ms = np.where(is_raw, numbers(raw_times, 0, np.int64), times_ms)
    lists, header_key, header_value = header_lists(
        rows.column("headers") if "headers" in names else None
    )
    raw = ABSENT
    if "headers_raw" in names and rows.column("headers_raw").null_count < rows.num_rows:
        raw = binary(rows.column("headers_raw"), rows.num_rows)
    out = np.empty(rows.num_rows, np.uint64)
    hash_kernel(
        numbers(rows.column("partition"), -1, np.int64),
        numbers(rows.column("offset"), -1, np.int64),
        np.ascontiguousarray(times_ms),
        binary(rows.column("key"), rows.num_rows),
        binary(rows.column("value"), rows.num_rows),
        lists, header_key, header_value, raw, out,
    )  # fmt: skip
    return out
