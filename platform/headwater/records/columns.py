"""The records of a batch as columns, encoded all at once when the batch is built.

A producer's `send` costs a few list appends; the bytes are made later, by functions in C that go
through whole columns. `headwater.records.builder` encodes record by record.
"""

from __future__ import annotations

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
_KEYLESS = [NULL_LENGTH + prefix for prefix in VARINTS]
"""By the size of a value: a null key, and the value's length."""
_KEYLESS_BYTES = tuple(size + 1 for size in _LAST_FIELD_BYTES)
_NO_HEADERS = b"\x00"
_ATTRIBUTES = b"\x00"
ONE_BYTE = 64
"""The varints of smaller numbers take one byte, those of larger ones in the table two."""
FEW = 4
"""So many records are encoded faster one by one."""


class _Leads(dict[int, bytes]):
    """By the size of a value, made when it is first met: the end of the record before, the length
    of a keyless record whose timestamp takes one byte, its attributes."""

    def __init__(self, offset_bytes: int) -> None:
        super().__init__()
        self._bytes = len(_ATTRIBUTES) + 1 + offset_bytes + len(NULL_LENGTH) + len(_NO_HEADERS)

    def __missing__(self, size: int) -> bytes:
        length = VARINTS[self._bytes + _FIELD_BYTES[size]]
        made = self[size] = _NO_HEADERS + length + _ATTRIBUTES
        return made


_FIRST_LEADS, _LATER_LEADS = _Leads(1), _Leads(2)
"""Of the records whose offsets take one byte, and of the others."""


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
        made.base_timestamp, made.max_timestamp = self.timestamps[0], max(set(self.timestamps))
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
        if not keys and span < ONE_BYTE:
            deltas = {time: VARINTS[time - first] for time in moments}
            return _keyless_payload(values, sizes, map(deltas.__getitem__, times))
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


def _keyless_payload(values: list[bytes], sizes: list[int], deltas: Iterable[bytes]) -> bytearray:
    """The bytes of keyless records. `deltas`: of their timestamps, one byte each."""
    leads = chain(
        map(_FIRST_LEADS.__getitem__, sizes[:ONE_BYTE]),
        map(_LATER_LEADS.__getitem__, sizes[ONE_BYTE:]),
    )
    # Ends with the shortest: there are more varints.
    records = zip(leads, deltas, VARINTS, map(_KEYLESS.__getitem__, sizes), values, strict=False)
    out = bytearray().join(chain.from_iterable(records))
    out += _NO_HEADERS
    del out[: len(_NO_HEADERS)]
    return out
