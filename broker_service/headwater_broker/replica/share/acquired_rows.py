"""The rows of a ShareFetch answer: what a member has acquired of one partition. Pure."""

from __future__ import annotations

from typing import NamedTuple


class Acquired(NamedTuple):
    """Offsets `first` to `last`, both inclusive, that a member may process now."""

    first: int
    last: int
    delivery_count: int


class AcquiredRows:
    """The rows of an answer: neighbours of one delivery count, cut at ends of record batches."""

    def __init__(self, batch_size: int, *, is_exact: bool) -> None:
        self._batch_size = batch_size
        self._is_exact = is_exact
        self._rows: list[Acquired] = []
        self._is_cut = False

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, first: int, last: int, count: int) -> None:
        row = self._rows[-1] if self._rows else None
        if row is None or self._is_cut or row.last != first - 1 or row.delivery_count != count:
            self._rows.append(Acquired(first, last, count))
            self._is_cut = False
        else:
            self._rows[-1] = Acquired(row.first, last, count)

    def end_batch(self) -> None:
        if self._rows and not self._is_exact:
            row = self._rows[-1]
            self._is_cut = row.last - row.first + 1 >= self._batch_size

    def done(self) -> list[Acquired]:
        return self._rows
