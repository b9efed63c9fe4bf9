"""The records of a batch as columns, encoded all at once when the batch is built.

A producer's `send` costs a few list appends; the bytes are made later, by functions in C that go
through whole columns. `headwater.records.builder` encodes record by record.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, repeat
from operator import add
from typing import cast

from headwater.records.builder import NO_TIMESTAMP, RECORD_OVERHEAD_MAX_BYTES, BatchBuilder
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
    """Collects the records of one batch. Not thread-safe. `send` appends to its lists itself.

    Timestamps are kept by runs: of the records that follow each other in a millisecond, only the
    first one costs more than a look at the clock.
    """

    __slots__ = ("_runs", "headers", "keys", "timestamp", "until_s", "values")

    def __init__(self) -> None:
        self._runs: list[tuple[int, int]] = []
        """(first record, timestamp). A run whose first record was not added after all is empty."""
        self.timestamp = NO_TIMESTAMP
        """Of the next record, without `stamp` or `tick`."""
        self.until_s = 0.0
        """A record that is of now has that timestamp before this time, seconds since 1970."""
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
        self.stamp(index, timestamp)
        self.values.append(value)
        if key is not None:
            self.keys[index] = key
        if headers:
            self.headers[index] = headers
        return index

    def stamp(self, index: int, timestamp: int) -> None:
        """The records from `index` on have this timestamp."""
        if not self._runs or timestamp != self.timestamp:
            self._runs.append((index, timestamp))
        self.until_s = 0.0
        self.timestamp = timestamp

    def tick(self, index: int, now_s: float) -> None:
        """The records from `index` on are of this time, up to the end of its millisecond. Where the
        clock is set back, they are until the batch is full."""
        now_ms = int(now_s * 1000)
        self.stamp(index, now_ms)
        self.until_s = (now_ms + 1) / 1000

    def _stretches(self) -> list[tuple[int, int, int]]:
        """(first record, end, timestamp) of each run."""
        ends = [start for start, _ in self._runs[1:]]
        ends.append(len(self.values))
        rows = zip(self._runs, ends, strict=True)
        return [(start, end, time) for (start, time), end in rows if start < end]

    def single(self) -> tuple[int, bytes | None, bytes | None]:
        """Timestamp, key and value of the only record."""
        start, timestamp = self._runs[-1]
        if start:  # a second record was not added after all
            timestamp = self._stretches()[0][2]
        return timestamp, self.keys.get(0), self.values[0]

    def builder(self) -> BatchBuilder:
        """A builder that holds these records."""
        made = BatchBuilder()
        stretches = self._stretches()
        payload = self._plain_payload(stretches) if len(self.values) > FEW else None
        if payload is None:
            keys, headers = self.keys.get, self.headers.get
            times = _by_record(stretches)
            for index, (timestamp, value) in enumerate(zip(times, self.values, strict=True)):
                made.append(timestamp, keys(index), value, headers(index, NO_HEADERS))
            return made
        made.count = len(self.values)
        made.base_timestamp = stretches[0][2]
        made.max_timestamp = max(time for _, _, time in stretches)
        made.payload = payload
        return made

    def _plain_payload(self, stretches: list[tuple[int, int, int]]) -> bytearray | None:
        """The records' bytes, if all are plain: small, with values, without headers, with keys or
        none at all. None otherwise."""
        count, keys = len(self.values), self.keys
        moments, first = {time for _, _, time in stretches}, stretches[0][2]
        span = max(moments) - first
        is_plain = count <= TABLE_SIZE and not self.headers and len(keys) in (0, count)
        if not is_plain or min(moments) < first or span >= TABLE_SIZE:
            return None
        values = cast(list[bytes], self.values)
        try:
            sizes = list(map(len, values))
        except TypeError:  # a null
            return None
        is_even = sizes.count(sizes[0]) == count
        key_sizes = list(map(len, keys.values()))
        if (sizes[0] if is_even else max(sizes)) + max(
            key_sizes, default=0
        ) + RECORD_OVERHEAD_MAX_BYTES >= TABLE_SIZE:
            return None
        if not keys and is_even and len(stretches) * RUN_RECORDS <= count:
            return _even_payload(values, sizes[0], _runs(stretches))
        stamps = {time: _ATTRIBUTES + VARINTS[time - first] for time in moments}
        leads = list(map(add, map(stamps.__getitem__, _by_record(stretches)), VARINTS))
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


def _by_record(stretches: list[tuple[int, int, int]]) -> Iterator[int]:
    """The timestamp of each record."""
    return chain.from_iterable(repeat(time, end - start) for start, end, time in stretches)


def _runs(stretches: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """(first record, end, timestamp less the first one) of records with one timestamp and offsets
    of one width."""
    first, runs = stretches[0][2], []
    for start, end, time in stretches:
        if start < ONE_BYTE < end:
            runs += [(start, ONE_BYTE, time - first), (ONE_BYTE, end, time - first)]
        else:
            runs.append((start, end, time - first))
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
