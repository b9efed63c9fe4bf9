"""The records of a batch as columns, encoded all at once when the batch is built.

A producer's `send` costs a few list appends; the bytes are made later, by functions in C that go
through whole columns. `headwater.records.builder` encodes record by record.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import chain, repeat
from operator import add
from typing import cast

from headwater.records.builder import RECORD_OVERHEAD_MAX_BYTES, BatchBuilder
from headwater.records.record import NO_HEADERS, Headers
from headwater.records.varint import NULL_LENGTH, TABLE_SIZE, VARINTS

_FIELD_BYTES = tuple(size + len(prefix) for size, prefix in enumerate(VARINTS))
"""By the size of a key: how many bytes it takes with its length."""
_LAST_FIELD_BYTES = tuple(size + 1 for size in _FIELD_BYTES)
"""By the size of a value: the same, with the header count behind it."""
_KEYLESS = tuple(NULL_LENGTH + prefix for prefix in VARINTS)
"""By the size of a value: a null key, and the value's length."""
_KEYLESS_BYTES = tuple(size + 1 for size in _LAST_FIELD_BYTES)
_NO_HEADERS = b"\x00"
_ATTRIBUTES = b"\x00"
ONE_BYTE = 64
"""The varints of smaller numbers take one byte, those of larger ones in the table two."""
_FIRST_BYTES = bytes(prefix[0] for prefix in VARINTS)
_LAST_BYTES = bytes(prefix[-1] for prefix in VARINTS)
"""Of the varints, which have one byte or two."""
RUN_RECORDS = 8
"""Runs of records of one size and time are encoded at once where they are as long on average."""
FEW = 4
"""So many records are encoded faster one by one."""


class BatchColumns:
    """Collects the records of one batch. Not thread-safe. `send` appends to its lists itself."""

    __slots__ = ("headers", "keys", "timestamps", "values")

    def __init__(self) -> None:
        self.timestamps: list[int] = []
        self.values: list[bytes | None] = []
        self.keys: dict[int, bytes] = {}
        """By the record's index, in order; none where the key is null."""
        self.headers: dict[int, Headers] = {}
        """By the record's index; none where there are no headers."""

    def append(
        self, timestamp: int, key: bytes | None, value: bytes | None, headers: Headers = NO_HEADERS
    ) -> int:
        """Add a record; returns its offset within the batch."""
        index = len(self.values)
        self.timestamps.append(timestamp)
        self.values.append(value)
        if key is not None:
            self.keys[index] = key
        if headers:
            self.headers[index] = headers
        return index

    def builder(self) -> BatchBuilder:
        """A builder that holds these records."""
        made = BatchBuilder()
        payload = self._plain_payload() if len(self.values) > FEW else None
        if payload is None:
            keys, headers = self.keys.get, self.headers.get
            for index, (timestamp, value) in enumerate(
                zip(self.timestamps, self.values, strict=True)
            ):
                made.append(timestamp, keys(index), value, headers(index, NO_HEADERS))
            return made
        made.count = len(self.values)
        made.base_timestamp, made.max_timestamp = self.timestamps[0], max(self.timestamps)
        made.payload = payload
        return made

    def _plain_payload(self) -> bytearray | None:
        """The records' bytes, if all are plain: small, with values, without headers, with keys or
        none at all. None otherwise."""
        count, times, keys = len(self.values), self.timestamps, self.keys
        moments, first = set(times), times[0]
        span = max(moments) - first
        is_plain = count <= TABLE_SIZE and not self.headers and len(keys) in (0, count)
        if not is_plain or min(moments) < first or span >= TABLE_SIZE:
            return None
        values = cast(list[bytes], self.values)
        try:
            sizes = list(map(len, values))
        except TypeError:  # a null
            return None
        key_sizes = list(map(len, keys.values()))
        if max(sizes) + max(key_sizes, default=0) + RECORD_OVERHEAD_MAX_BYTES >= TABLE_SIZE:
            return None
        if not keys and sizes.count(sizes[0]) == count and (runs := _runs(times)):
            return _even_payload(values, sizes[0], runs)
        stamps = {time: _ATTRIBUTES + VARINTS[time - first] for time in moments}
        leads = list(map(add, map(stamps.__getitem__, times), VARINTS))  # as many as times
        weights: Iterable[int] = map(len, leads)
        parts: list[Iterable[bytes]] = [leads]
        if keys:
            parts += [map(VARINTS.__getitem__, key_sizes), keys.values()]
            parts.append(map(VARINTS.__getitem__, sizes))
            weights = map(add, weights, map(_FIELD_BYTES.__getitem__, key_sizes))
            weights = map(add, weights, map(_LAST_FIELD_BYTES.__getitem__, sizes))
        else:
            parts.append(map(_KEYLESS.__getitem__, sizes))
            weights = map(add, weights, map(_KEYLESS_BYTES.__getitem__, sizes))
        lengths = map(VARINTS.__getitem__, weights)
        records = zip(lengths, *parts, values, repeat(_NO_HEADERS), strict=False)
        return bytearray().join(chain.from_iterable(records))


def _runs(times: list[int]) -> list[tuple[int, int, int]]:
    """(first record, end, timestamp less the first one) of records with one timestamp and offsets
    of one width; none if they are short, or the timestamps do not rise."""
    if times != sorted(times):
        return []
    runs, at, count = [], 0, len(times)
    while at < count:
        end = bisect_right(times, times[at], at)
        if at < ONE_BYTE:
            end = min(end, ONE_BYTE)
        runs.append((at, end, times[at] - times[0]))
        if len(runs) * RUN_RECORDS > count:
            return []
        at = end
    return runs


def _even_payload(values: list[bytes], size: int, runs: list[tuple[int, int, int]]) -> bytearray:
    """The bytes of keyless records whose values have one size: of those of a run, only value and
    offset differ."""
    out = bytearray()
    for at, end, delta in runs:
        head = _ATTRIBUTES + VARINTS[delta]
        offset = VARINTS[at]
        length = len(head) + len(offset) + _KEYLESS_BYTES[size]
        head = VARINTS[length] + head
        record = head + offset + _KEYLESS[size]
        start, step = len(out) + len(head), len(record) + size + len(_NO_HEADERS)
        out += record
        out += (_NO_HEADERS + record).join(values[at:end])
        out += _NO_HEADERS
        out[start::step] = _FIRST_BYTES[at:end]
        if len(offset) > 1:
            out[start + 1 :: step] = _LAST_BYTES[at:end]
    return out
