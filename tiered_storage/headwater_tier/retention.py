"""Retention of tiered partitions: the log start by retention.ms and retention.bytes.

Retention removes whole ranges (row groups) from the oldest on. `DELETE WHERE timestamp <` would
leave holes, as timestamps do not rise with offsets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from headwater_tier.delta import LiveFile, Snapshot, TableAccessError, filesystem
from headwater_tier.reader import index_groups
from headwater_tier.table_names import TableLocation

NEVER_EXPIRES_MS = 1 << 62
"""The time of a range whose largest timestamp is unknown."""


@dataclass(frozen=True, slots=True)
class Range:
    """One row group of one partition. `newest_ms` is its largest timestamp, or the time when the
    file was written if its records have none."""

    partition: int
    min_offset: int
    max_offset: int
    newest_ms: int
    size_bytes: int


class RangeIndex:
    """The ranges of a table's live files; reads each footer once."""

    def __init__(self, location: TableLocation) -> None:
        self._location = location
        self._by_file: dict[str, tuple[Range, ...]] = {}

    def ranges(self, snapshot: Snapshot) -> list[Range]:
        """All ranges of a version. Raises TableAccessError."""
        known = self._by_file
        self._by_file = {
            f.path: known.get(f.path) or tuple(_ranges(self._location, f)) for f in snapshot.files
        }
        return [found for ranges in self._by_file.values() for found in ranges]


def due_starts(
    ranges: Sequence[Range], starts: Mapping[int, int], limits: Limits, now_ms: int
) -> dict[int, int]:
    """The new log starts of partitions whose ranges exceed the limits. Pure.

    A range expires when its newest record is older than retention.ms, or when the ranges after it
    alone have retention.bytes. The first range that does not expire keeps all later ones.
    """
    due = {}
    by_partition: dict[int, list[Range]] = {}
    for found in ranges:
        if found.max_offset >= starts.get(found.partition, 0):
            by_partition.setdefault(found.partition, []).append(found)
    for partition, mine in by_partition.items():
        mine.sort(key=lambda r: (r.min_offset, r.max_offset))
        left = sum(r.size_bytes for r in mine)
        start = starts.get(partition, 0)
        for found in mine:
            left -= found.size_bytes
            is_old = limits.retention_ms != NO_LIMIT and (
                now_ms - found.newest_ms > limits.retention_ms
            )
            is_excess = limits.retention_bytes != NO_LIMIT and left >= limits.retention_bytes
            if not is_old and not is_excess:
                break
            start = max(start, found.max_offset + 1)
        if start > starts.get(partition, 0):
            due[partition] = start
    return due


def _ranges(location: TableLocation, live: LiveFile) -> Iterator[Range]:
    try:
        with filesystem(location).open_input_file(live.path) as source:
            footer = pq.read_metadata(source)
    except (OSError, pa.ArrowException) as error:
        raise TableAccessError(f"{location.uri}/{live.path} cannot be read: {error}") from error
    names = [footer.schema.column(i).path for i in range(footer.num_columns)]
    at_timestamp = names.index("timestamp")
    for group in index_groups(live.path, footer):
        data = footer.row_group(group.index)
        newest_ms = _newest_ms(data.column(at_timestamp).statistics, live.modified_ms)
        size_bytes = sum(data.column(i).total_compressed_size for i in range(data.num_columns))
        if group.min_partition != group.max_partition:
            newest_ms = NEVER_EXPIRES_MS  # a foreign file: its partitions' starts stay below it
        yield from (
            Range(partition, group.min_offset, group.max_offset, newest_ms, size_bytes)
            for partition in _partitions(group.min_partition, group.max_partition)
        )


def _partitions(low: int, high: int) -> range:
    return range(low, min(high, low + (1 << 16)) + 1)


def _newest_ms(statistics: Any, written_ms: int) -> int:
    """The largest timestamp of a column chunk; timestamps that overflowed are stored as null."""
    if statistics is None or not statistics.has_min_max or statistics.null_count:
        return NEVER_EXPIRES_MS
    newest = int(statistics.max_raw) // 1000  # max_raw: datetime does not hold all timestamps
    return newest if newest >= 0 else written_ms


NO_LIMIT = -1


@dataclass(frozen=True, slots=True)
class Limits:
    """A topic's retention limits; -1 is no limit."""

    retention_ms: int = NO_LIMIT
    retention_bytes: int = NO_LIMIT

    @property
    def unlimited(self) -> bool:
        """True when retention removes nothing."""
        return self.retention_ms == NO_LIMIT and self.retention_bytes == NO_LIMIT
