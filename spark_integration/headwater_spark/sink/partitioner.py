"""Kafka's default partitioner (KIP-480) for whole Arrow columns.

A key's partition is murmur2 of its bytes, as in every Kafka client: a key has one partition,
whichever client writes it. All rows of a chunk without a key go to one partition, another per
chunk.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from headwater.columnar.jit import kernel
from headwater.errors import UsageError

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


@kernel
def _murmur2_many(data: Any, offsets: Any, partitions: int, out: Any) -> None:
    for row in range(len(offsets) - 1):
        at, end = offsets[row], offsets[row + 1]
        length = end - at
        h = np.uint64((_SEED ^ length) & _MASK)
        while end - at >= 4:
            k = np.uint64(
                np.uint64(data[at])
                | (np.uint64(data[at + 1]) << np.uint64(8))
                | (np.uint64(data[at + 2]) << np.uint64(16))
                | (np.uint64(data[at + 3]) << np.uint64(24))
            )
            k = (k * np.uint64(_M)) & np.uint64(_MASK)
            k ^= k >> np.uint64(24)
            k = (k * np.uint64(_M)) & np.uint64(_MASK)
            h = ((h * np.uint64(_M)) & np.uint64(_MASK)) ^ k
            at += 4
        left = end - at
        if left >= 3:
            h ^= np.uint64(data[at + 2]) << np.uint64(16)
        if left >= 2:
            h ^= np.uint64(data[at + 1]) << np.uint64(8)
        if left >= 1:
            h ^= np.uint64(data[at])
            h = (h * np.uint64(_M)) & np.uint64(_MASK)
        h ^= h >> np.uint64(13)
        h = (h * np.uint64(_M)) & np.uint64(_MASK)
        h ^= h >> np.uint64(15)
        out[row] = np.int32((h & np.uint64(0x7FFFFFFF)) % np.uint64(partitions))


def by_key(keys: pa.Array, partitions: int) -> Any:
    """int32 partitions of binary keys; the entries of null keys are undefined."""
    out = np.zeros(len(keys), np.int32)
    _, offsets_buffer, data_buffer = keys.buffers()
    if not len(keys) or offsets_buffer is None:
        return out
    offsets = np.frombuffer(offsets_buffer, np.int32)[keys.offset : keys.offset + len(keys) + 1]
    data = np.frombuffer(data_buffer, np.uint8) if data_buffer else np.empty(0, np.uint8)
    _murmur2_many(data, offsets.astype(np.int64), partitions, out)
    return out


def choose(
    keys: pa.Array | None, wanted: pa.Array | None, rows: int, partitions: int, turn: int
) -> Any:
    """int32 partition per row: its `wanted` one, else its key's, else `turn` modulo partitions."""
    chosen = np.full(rows, turn % partitions, np.int32)
    if keys is not None and keys.null_count < rows:
        has_key = keys.is_valid().to_numpy(zero_copy_only=False)
        chosen = np.where(has_key, by_key(keys, partitions), chosen)
    if wanted is not None and wanted.null_count < rows:
        is_given = wanted.is_valid().to_numpy(zero_copy_only=False)
        given = wanted.fill_null(0).to_numpy(zero_copy_only=False)
        bad = given[(given < 0) | (given >= partitions)]
        if len(bad):
            raise UsageError(
                f"column 'partition' holds {int(bad[0])}; the topic has partitions 0 to"
                f" {partitions - 1}"
            )
        chosen = np.where(is_given, given, chosen)
    return chosen.astype(np.int32)
