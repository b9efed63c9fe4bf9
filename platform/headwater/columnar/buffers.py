"""Arrow columns as flat numpy arrays for the kernels, whatever their slice or width."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

Binary = tuple[Any, Any, Any]
"""A binary column: validity (a byte per row; empty: all valid), offsets (int64), bytes."""
NO_BYTES = np.empty(0, np.uint8)
NO_BYTES.flags.writeable = False  # as bytes out of Arrow are: numba compiles per kind of array
ABSENT: Binary = (NO_BYTES, np.zeros(1, np.int64), NO_BYTES)


def numbers(array: pa.Array, when_null: int, dtype: Any) -> Any:
    """A numeric column as numpy, with nulls replaced by `when_null`."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if array.null_count:
        array = array.fill_null(when_null)
    return np.ascontiguousarray(array.to_numpy(zero_copy_only=False).astype(dtype))


def validity(array: pa.Array) -> Any:
    """One byte per row, 1 for not null; empty if there are no nulls."""
    if not array.null_count:
        return NO_BYTES
    flags = array.is_valid().to_numpy(zero_copy_only=False).view(np.uint8)
    flags.flags.writeable = False
    return flags


def binary(array: pa.Array | None, rows: int) -> Binary:
    """A binary or string column, small or large."""
    if array is None:
        none = np.zeros(rows, np.uint8)
        none.flags.writeable = False
        return none, np.zeros(rows + 1, np.int64), NO_BYTES
    if isinstance(array, pa.ChunkedArray):
        array = array.cast(pa.large_binary()).combine_chunks()
    elif not (pa.types.is_binary(array.type) or pa.types.is_string(array.type)):
        array = array.cast(pa.large_binary())
    is_large = pa.types.is_large_binary(array.type)
    _, offsets_buffer, data_buffer = array.buffers()
    if not len(array) or offsets_buffer is None:
        return validity(array), np.zeros(len(array) + 1, np.int64), NO_BYTES
    width = np.int64 if is_large else np.int32
    offsets = np.frombuffer(offsets_buffer, width)[array.offset : array.offset + len(array) + 1]
    data = NO_BYTES if data_buffer is None else np.frombuffer(data_buffer, np.uint8)
    return validity(array), offsets.astype(np.int64), data


def header_lists(headers: pa.Array | None) -> tuple[tuple[Any, Any], Binary, Binary]:
    """A headers column: (validity, offsets) of the lists, all header keys, all header values."""
    if headers is None or headers.null_count == len(headers):
        return (NO_BYTES, np.zeros(1, np.int64)), ABSENT, ABSENT
    if isinstance(headers, pa.ChunkedArray):
        headers = headers.combine_chunks()
    offsets = np.frombuffer(headers.buffers()[1], np.int32)
    offsets = offsets[headers.offset : headers.offset + len(headers) + 1].astype(np.int64)
    keys, values = headers.values.flatten()
    return (
        (validity(headers), offsets),
        binary(keys, len(keys)),
        binary(values, len(values)),
    )
