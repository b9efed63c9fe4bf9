"""Decodes a batch's records into columns of Python objects, with numpy: a consumer's `poll`.

Only the walk from record to record is a loop; fields are read for all records at once. What is
unusual (a varint of many bytes, a bad size) is left to `headwater.records.record`, as are small
batches.
"""

from __future__ import annotations

from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwater.records import record as rows
from headwater.records.batch import BatchHeader
from headwater.records.record import RecordColumns

ROWS_MIN = 192
"""Below so many records numpy's calls cost more than the loop that they spare."""
SHIFT_MAX = 49
PLACE_MAX = 2**32
Numbers = NDArray[np.int64]


class UnusualError(ValueError):
    """The batch is bad, or decoded by the loop."""


def decode_columns(data: bytes, header: BatchHeader, start_offset: int = 0) -> RecordColumns:
    """The same as `headwater.records.record.decode_columns`."""
    if header.record_count >= ROWS_MIN:
        try:
            columns = columns_by_numpy(data, header)
        except (ValueError, IndexError, OverflowError):
            pass  # the loop decodes it, or tells what is wrong with it
        else:
            if start_offset <= header.base_offset:
                return columns
            return rows.columns_from(columns, start_offset)
    return rows.decode_columns(data, header, start_offset)


def _ends(data: bytes, count: int) -> list[int]:
    """Where each record ends. Raises IndexError."""
    ends: list[int] = []
    at = 0
    for _ in repeat(None, count):
        size = data[at]
        if size < 0x80:
            at += 1 + (size >> 1)
        else:
            byte = data[at + 1]
            if byte < 0x80:
                at += 2 + (byte << 6) + (size >> 1 & 0x3F)
            else:
                size, begin = rows.longer(data, at + 1, size)
                at = begin + (size >> 1)
        ends.append(at)
    return ends


def _read(cells: NDArray[np.uint8], at: Numbers) -> tuple[Numbers, Numbers]:
    """(zigzag numbers, the positions behind them) of the varints at these positions."""
    first = cells[at]
    longer = np.flatnonzero(first & 0x80)
    found = (first & 0x7F).astype(np.int64)
    at = at + 1
    shift = 7
    while len(longer):
        if shift > SHIFT_MAX:
            raise UnusualError
        byte = cells[at[longer]]
        found[longer] |= (byte & 0x7F).astype(np.int64) << shift
        at[longer] += 1
        longer = longer[byte >= 0x80]
        shift += 7
    return found, at


def _signed(zigzag: Numbers) -> Numbers:
    return (zigzag >> 1) ^ -(zigzag & 1)


def _blobs(data: bytes, at: Numbers, sizes: Numbers) -> list[Any]:
    """Slices of these signed sizes; None for a negative one."""
    absent = np.flatnonzero(sizes < 0)
    if len(absent) == len(sizes):
        return [None] * len(sizes)
    blobs: list[Any] = [
        data[begin:stop] for begin, stop in zip(at.tolist(), (at + sizes).tolist(), strict=True)
    ]
    for row in absent.tolist():
        blobs[row] = None
    return blobs


def columns_by_numpy(data: bytes, header: BatchHeader) -> RecordColumns:
    """The columns of a batch that is as usual. Raises ValueError, IndexError for another one."""
    count = header.record_count
    ends = np.array(_ends(data, count), np.int64)
    if ends[-1] != len(data):
        raise UnusualError
    cells = np.frombuffer(data, np.uint8)
    starts = np.empty_like(ends)
    starts[0], starts[1:] = 0, ends[:-1]
    sizes, begins = _read(cells, starts)
    if (sizes & 1).any():
        raise UnusualError
    deltas, at = _read(cells, begins + 1)  # after the attributes: unused
    places, at = _read(cells, at)
    key_sizes, keys_at = _read(cells, at)
    key_sizes = _signed(key_sizes)
    value_sizes, values_at = _read(cells, keys_at + np.maximum(key_sizes, 0))
    value_sizes = _signed(value_sizes)
    headers_at = values_at + np.maximum(value_sizes, 0)
    with_headers = np.flatnonzero(cells[headers_at])
    behind = headers_at + 1
    headers: list[list[tuple[str, bytes | None]]] = [rows.EMPTY_HEADERS] * count
    for row in with_headers.tolist():
        headers[row], behind[row] = rows.read_headers(data, int(headers_at[row]))
    if (behind != ends).any() or places.max() >= PLACE_MAX:
        raise UnusualError
    if header.is_log_append_time:
        times = [header.max_timestamp] * count
    else:
        times = (_signed(deltas) + header.base_timestamp).tolist()
    offsets = (_signed(places) + header.base_offset).tolist()
    keys = _blobs(data, keys_at, key_sizes)
    return offsets, times, keys, _blobs(data, values_at, value_sizes), headers
