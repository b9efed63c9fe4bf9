"""The partitions of a column of keys: `core.partitioning` for a table, by numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from headwater.client.core.partitioning import MURMUR2_M, MURMUR2_SEED, murmur2

SHORT_KEY_BYTES = 256
"""Numpy goes through keys word by word, for all rows at once; longer ones are hashed one by one."""
_M = np.uint32(MURMUR2_M)


def key_partitions(key: Any, partitions: int, keyless: int) -> Any:
    """The partition of each key by Java's default partitioner; a null key goes to `keyless`."""
    wide = key.cast(pa.large_binary())
    buffers = wide.buffers()
    ends = np.frombuffer(buffers[1], np.int64)[wide.offset : wide.offset + len(wide) + 1]
    data = np.frombuffer(buffers[2], np.uint8) if buffers[2] else np.empty(0, np.uint8)
    hashes = _short_hashes(data, ends[:-1], np.diff(ends))
    for row in np.flatnonzero(np.diff(ends) > SHORT_KEY_BYTES).tolist():
        hashes[row] = murmur2(wide[row].as_py() or b"")
    out = (hashes & np.uint32(0x7FFFFFFF)).astype(np.int64) % partitions
    if wide.null_count:
        out[wide.is_null().to_numpy(zero_copy_only=False)] = keyless
    return out


def _short_hashes(data: Any, starts: Any, sizes: Any) -> Any:
    """murmur2 of the keys of up to SHORT_KEY_BYTES; anything for the others."""
    hashes = np.uint32(MURMUR2_SEED) ^ sizes.astype(np.uint32)
    is_short = sizes <= SHORT_KEY_BYTES
    # The word at every byte: a key may begin anywhere.
    count = max(0, len(data) - 3)
    words = np.ndarray((count,), "<u4", data, strides=(1,)) if count else np.empty(0, np.uint32)
    left = np.flatnonzero(is_short & (sizes >= 4))
    at = 0
    while len(left):
        word = words[starts[left] + at] * _M
        word ^= word >> np.uint32(24)
        hashes[left] = (hashes[left] * _M) ^ (word * _M)
        at += 4
        left = left[sizes[left] >= at + 4]
    rests = sizes & 3
    for index in (2, 1, 0):
        rows = np.flatnonzero(is_short & (rests > index))
        byte = data[starts[rows] + sizes[rows] - rests[rows] + index].astype(np.uint32)
        hashes[rows] ^= byte << np.uint32(8 * index)
    hashes[rests > 0] *= _M
    hashes ^= hashes >> np.uint32(13)
    hashes *= _M
    return hashes ^ (hashes >> np.uint32(15))
