"""The records of a batch as columns, encoded all at once when the batch is built.

A producer's `send` costs a few list appends; the bytes are made later, by functions in C that go
through whole columns. `headwater.records.builder` encodes record by record.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, repeat
from operator import add

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
        payload = self._plain_payload()
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
        is_plain = 0 < count <= TABLE_SIZE and not self.headers and len(keys) in (0, count)
        if not is_plain or min(times) < times[0] or max(times) - times[0] >= TABLE_SIZE:
            return None
        values = [value for value in self.values if value is not None]
        sizes = list(map(len, values))
        key_sizes = list(map(len, keys.values()))
        widest = max(sizes, default=0) + max(key_sizes, default=0) + RECORD_OVERHEAD_MAX_BYTES
        if len(values) < count or widest >= TABLE_SIZE:
            return None
        stamps = {time: b"\x00" + VARINTS[time - times[0]] for time in set(times)}
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
