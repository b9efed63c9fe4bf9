"""A query's filters on topic, partition, offset and timestamp, as the offsets to read. Pure.

The window only leaves out offsets that no filter lets through; Spark still applies every filter to
the rows. An upper limit on timestamps leaves nothing out: producers set timestamps, so that a later
record may have an earlier one.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from headwater_spark.source.positions import Offsets, Position

_HOLDS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "in": lambda value, choices: value in choices,
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TYPES: dict[str, type] = {"topic": str, "partition": int, "offset": int, "timestamp": datetime}


@dataclass(frozen=True, slots=True)
class Comparison:
    """One filter: a column, one of = in > >= < <=, and the value, for `in` a sequence of values."""

    column: str
    operator: str
    value: Any

    @property
    def values(self) -> Sequence[Any]:
        """The value or the values."""
        return tuple(self.value) if self.operator == "in" else (self.value,)


@dataclass(frozen=True, slots=True)
class ReadWindow:
    """The offsets that a query's filters can let through."""

    partitions: tuple[Comparison, ...] = ()
    """Filters on topic and partition."""
    first_offset: int = 0
    end_offset: int | None = None
    first_ms: int | None = None
    """The lowest timestamp."""

    def holds(self, topic: str, partition: int) -> bool:
        """True when rows of this partition may pass the filters."""
        columns = {"topic": topic, "partition": partition}
        return all(_HOLDS[c.operator](columns[c.column], c.value) for c in self.partitions)


def read_window(comparisons: Sequence[Comparison]) -> ReadWindow:
    """The window of filters that must all hold; a filter that it can't use is passed over."""
    window = ReadWindow()
    for comparison in comparisons:
        kind = _TYPES.get(comparison.column)
        usable = kind is not None and all(isinstance(v, kind) for v in comparison.values)
        if not usable or not comparison.values:
            continue
        if comparison.column in ("topic", "partition"):
            window = replace(window, partitions=(*window.partitions, comparison))
        elif comparison.column == "offset":
            window = _with_offsets(window, comparison)
        else:
            window = _with_time(window, comparison)
    return window


def inside(position: Position, window: ReadWindow) -> Position:
    """The batch cut to the window's partitions and offsets."""
    start, end = dict(position.start), dict(position.end)
    for tp, last in position.end.items():
        if not window.holds(*tp):
            end[tp] = start[tp]
            continue
        stop = last if window.end_offset is None else min(last, window.end_offset)
        end[tp] = max(start[tp], stop)
        start[tp] = min(max(start[tp], window.first_offset), end[tp])
    return replace(position, start=start, end=end)


def from_starts(position: Position, starts: Offsets) -> Position:
    """The batch from later start offsets on: of a timestamp, or -1 where no record is that late."""
    start = dict(position.start)
    for tp, offset in starts.items():
        end = position.end[tp]
        start[tp] = end if offset < 0 else min(max(start[tp], offset), end)
    return replace(position, start=start)


def _with_offsets(window: ReadWindow, comparison: Comparison) -> ReadWindow:
    low, high = min(comparison.values), max(comparison.values)
    if comparison.operator in ("=", "in", ">", ">="):
        first = low + 1 if comparison.operator == ">" else low
        window = replace(window, first_offset=max(window.first_offset, first))
    if comparison.operator in ("=", "in", "<", "<="):
        end = high if comparison.operator == "<" else high + 1
        known = window.end_offset
        window = replace(window, end_offset=end if known is None else min(known, end))
    return window


def _with_time(window: ReadWindow, comparison: Comparison) -> ReadWindow:
    low = min(comparison.values)
    if comparison.operator in ("<", "<=") or low.tzinfo is None:
        return window
    microseconds = (low - _EPOCH) // timedelta(microseconds=1)
    # A record's timestamp has whole milliseconds.
    first = microseconds // 1000 + 1 if comparison.operator == ">" else -(-microseconds // 1000)
    return replace(window, first_ms=max(window.first_ms or 0, first))
