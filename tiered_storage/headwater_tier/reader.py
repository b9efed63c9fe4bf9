"""Reads a log table by partition and offset: one row group per read, with footers in memory.

Headwater's files have sorted row groups of one partition each. Files that a user's OPTIMIZE wrote
may be unsorted and have several partitions per row group: they are read correctly, but slower.
`rebuilt_segments` makes record batches of the rows.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC
from heapq import heappop, heappush
from itertools import count, pairwise, takewhile
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headwater.columnar.schema import LOG_TABLE_COLUMNS, LOG_TABLE_SCHEMA
from headwater_tier.delta import (
    LiveFile,
    LogTable,
    Snapshot,
    TableAccessError,
    filesystem,
    may_use_threads,
)
from headwater_tier.file_index import FileIndex
from headwater_tier.live_files import LiveFiles
from headwater_tier.table_names import TableLocation, is_own_file

FOOTERS_MAX = 4096
"""Files whose row-group index is cached; about 1 KB each."""

GAP_MIN = 1_000_000
"""Fewer offsets without rows are not worth to be looked for."""
NO_OFFSET = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class RowGroup:
    """One row group of one file; a foreign one may span partitions."""

    path: str
    index: int
    min_partition: int
    max_partition: int
    min_offset: int
    max_offset: int
    rows: int
    max_timestamp_ms: int | None = None
    """From the statistics, rounded up; None without them, or if a timestamp overflowed."""


@dataclass(frozen=True, slots=True)
class RowRange:
    """All rows of a partition with offsets in [start_offset, end_offset), sorted.

    `end_offset` is the next row's offset or the table's end: offsets after the last row are a gap.
    """

    rows: pa.RecordBatch
    start_offset: int
    end_offset: int
    paths: tuple[str, ...]
    """The files of the rows, relative to the table; empty for a gap."""


class OffsetNotTieredError(TableAccessError):
    """The offset is outside the partition's tiered range."""


class TableReader:
    """An open log table for reads by offset. Not thread-safe."""

    def __init__(self, location: TableLocation, columns: Sequence[str] = LOG_TABLE_COLUMNS) -> None:
        """Open the newest version. Raises TableAccessError, TableStateError.

        `columns` are those that reads return, in the table's order; partition, offset among them.
        """
        self.location = location
        self._schema = pa.schema([field for field in LOG_TABLE_SCHEMA if field.name in columns])
        self._table = LogTable(location)
        self._files = filesystem(location)
        self._threads = may_use_threads(location)
        self._footers: OrderedDict[str, tuple[RowGroup, ...]] = OrderedDict()
        self._indexed: tuple[LiveFiles, FileIndex] | None = None

    @property
    def snapshot(self) -> Snapshot:
        """The version that serves reads."""
        return self._table.snapshot

    def refresh(self) -> Snapshot:
        """Move to the newest version. Raises TableAccessError, TableStateError."""
        return self._table.refresh()

    def read(self, partition: int, offset: int) -> RowRange:
        """The rows of the row group that has `offset`, or of the next one after a gap.

        Raises OffsetNotTieredError outside [start, end), TableAccessError for a missing file.
        """
        snapshot = self.snapshot
        start, end = snapshot.starts.get(partition, 0), snapshot.ends.get(partition)
        if end is None or not start <= offset < end:
            raise OffsetNotTieredError(
                f"partition {partition} offset {offset} is not in {self.location.uri}, "
                f"which holds [{start}, {end}) at version {snapshot.version}"
            )
        wanted, following = self._wanted(partition, offset)
        if not wanted:
            return RowRange(self._no_rows(), offset, end, ())
        bound = wanted[0].max_offset
        rows = self._rows(wanted, partition)
        offsets = rows.column("offset")
        if all(is_own_file(g.path) for g in wanted):
            first = max(start, wanted[0].min_offset)
        else:
            # Foreign row groups may interleave with row groups that end before `offset`.
            first = offset
        if rows.num_rows and (offsets[0].as_py() < first or offsets[-1].as_py() > bound):
            following += offsets.filter(pc.greater(offsets, bound))[:1].to_pylist()
            keep = pc.and_(pc.greater_equal(offsets, first), pc.less_equal(offsets, bound))
            rows = rows.filter(keep)
        paths = tuple(dict.fromkeys(g.path for g in wanted))
        return RowRange(rows, min(offset, first), min([end, *following]), paths)

    def _wanted(self, partition: int, offset: int) -> tuple[list[RowGroup], list[int]]:
        """The row group that has the offset, or the next one after it, with those that overlap it;
        and the first offset after them, or one before it: empty if there is none.

        Opens few files however many there are, and a file that is lost costs its own offsets only.
        """
        own = self._own_group(partition, offset)
        if own is not None:
            after = own.max_offset + 1
            is_last = next(self._index().within(partition, after), None) is None
            return [own], [] if is_last else [after]
        wanted: list[RowGroup] = []
        for group in self._groups(partition, offset):
            if wanted and group.min_offset > wanted[0].max_offset:
                return wanted, [group.min_offset]
            wanted.append(group)
        return wanted, []

    def _own_group(self, partition: int, offset: int) -> RowGroup | None:
        """The row group of a file of Headwater's, if no other has rows between the offset and its
        last: as all its own offsets are there, or no other file holds any. A fold leaves large
        files as they are, and may span one."""

        def side(path: str) -> int | None:
            try:
                groups = [g for g in self._footer(path) if g.min_partition == partition]
            except TableAccessError:
                return None  # perhaps another file is the one
            if not groups:
                return None
            low, high = min(g.min_offset for g in groups), max(g.max_offset for g in groups)
            return -1 if offset < low else int(offset > high)

        path = self._index().own_at(partition, offset, side)
        if path is None:
            return None
        later = (g for g in self._footer(path) if g.min_partition == partition)
        group = min((g for g in later if g.max_offset >= offset), key=lambda g: g.min_offset)
        size = group.max_offset - group.min_offset + 1
        if group.min_offset <= offset and group.rows == size:
            return group
        start = min(offset, group.min_offset)
        others = self._index().within(partition, start, group.max_offset + 1)
        spans = (self._may_meet(other, partition, start, group) for _, other in others)
        return None if any(spans) else group

    def _may_meet(self, path: str, partition: int, start: int, group: RowGroup) -> bool:
        """Whether a file may hold rows of the partition from `start` to the end of a group of
        another file."""
        if path == group.path:
            return False
        if not is_own_file(path):
            return True
        try:
            footer = self._footer(path)
        except TableAccessError:
            return True
        return any(
            g.min_partition <= partition <= g.max_partition
            and g.min_offset <= group.max_offset
            and g.max_offset >= start
            for g in footer
        )

    def _index(self) -> FileIndex:
        files = self.snapshot.files
        if self._indexed is None or self._indexed[0] is not files:
            self._indexed = files, FileIndex(files)
        return self._indexed[1]

    def next_offset(self, partition: int, offset: int) -> int:
        """The first offset from `offset` on that may have a row; the tiered end without one. So a
        reader that counts offsets passes over a gap at once. Reads statistics, and the offsets of a
        row group that has a gap inside. Raises TableAccessError."""
        nearest = max(offset, self.snapshot.ends.get(partition, offset))
        files = [f for f in self.snapshot.files if _may_hold(f, partition, offset)]
        for live in sorted(files, key=lambda f: f.min_offset or 0):
            if nearest <= offset or (live.min_offset or 0) >= nearest:
                break
            for group in self._footer(live.path):
                holds = group.min_partition <= partition <= group.max_partition
                if holds and offset <= group.max_offset and group.min_offset < nearest:
                    with self._open(group.path) as source:
                        nearest = min(nearest, next_in_group(source, group, partition, offset))
        return nearest

    def runs(self, partition: int, start: int, end: int) -> Iterator[tuple[int, int]]:
        """The ranges of [start, end) without the gaps of GAP_MIN offsets and more, in order.
        Raises TableAccessError."""
        groups = takewhile(lambda g: g.min_offset < end, self._groups(partition, start))
        spans = (span for group in groups for span in self._spans(group, partition))
        first, last = -1, -1
        for low, high in sorted(spans):
            if first >= 0 and low - last >= GAP_MIN:
                yield first, last
                first = -1
            first, last = (low if first < 0 else first), max(last, high)
        if first >= 0:
            yield first, last

    def _spans(self, group: RowGroup, partition: int) -> list[tuple[int, int]]:
        """The ranges [first, last + 1) of one row group between its wide gaps."""
        if group.max_offset - group.min_offset + 1 - group.rows < GAP_MIN:
            return [(group.min_offset, group.max_offset + 1)]
        rows = self._rows([group], partition).column("offset").to_numpy()
        if not len(rows):
            return []
        at = [0, *(int(n) + 1 for n in (rows[1:] - rows[:-1] >= GAP_MIN).nonzero()[0]), len(rows)]
        return [(int(rows[a]), int(rows[b - 1]) + 1) for a, b in pairwise(at)]

    def rows_between(
        self, partition: int, start_offset: int, end_offset: int
    ) -> Iterator[pa.RecordBatch]:
        """The partition's rows in the offset range, in offset order, a row group at a time."""
        offset = start_offset
        while offset < end_offset:
            found = self.read(partition, offset)
            rows = found.rows
            offsets = rows.column("offset")
            keep = pc.and_(pc.greater_equal(offsets, offset), pc.less(offsets, end_offset))
            yield rows.filter(keep)
            offset = found.end_offset

    def first_at(
        self, partition: int, timestamp_ms: int, start: int, end: int
    ) -> tuple[int, int, int] | None:
        """(offset, timestamp in ms, leader epoch) of the first record in [start, end) whose
        timestamp is at least `timestamp_ms`. Skips row groups by their largest timestamp."""
        start = max(start, self.snapshot.starts.get(partition, 0))
        if partition not in self.snapshot.ends:
            return None
        for group in self._groups(partition, start):
            newest = group.max_timestamp_ms
            if group.min_offset >= end:
                return None
            if newest is not None and newest < timestamp_ms:
                continue
            rows = self._rows([group], partition)
            raw = rows.column("timestamp_raw")
            micros = rows.column("timestamp").cast(pa.int64())
            times = pc.coalesce(raw, pc.divide(micros, 1000))  # whole milliseconds
            offsets = rows.column("offset")
            wanted = pc.and_(
                pc.greater_equal(times, timestamp_ms),
                pc.and_(pc.greater_equal(offsets, start), pc.less(offsets, end)),
            )
            at = pc.index(wanted, True).as_py()
            if at >= 0:
                epoch = rows.column("leader_epoch")[at].as_py()
                return offsets[at].as_py(), times[at].as_py(), -1 if epoch is None else epoch
        return None

    def holders(self, partition: int, offset: int) -> int:
        """How many files may hold the offset, by their statistics."""
        return sum(1 for _ in self._index().within(partition, offset, offset + 1))

    def missing_files(self, paths: Sequence[str]) -> list[str]:
        """The files among `paths` that no longer exist."""
        if not paths:
            return []
        found = self._files.get_file_info(list(paths))
        return [info.path for info in found if not info.is_file]

    def _groups(self, partition: int, offset: int) -> Iterator[RowGroup]:
        """The row groups that may have rows of the partition from this offset on, by their bounds.
        A file is opened once a group that it may have could be the next."""
        ready: list[tuple[int, int, int, RowGroup]] = []
        numbers = count()
        for low, path in self._index().within(partition, offset):
            while ready and ready[0][0] < low:
                yield heappop(ready)[-1]
            for group in self._footer(path):
                holds = group.min_partition <= partition <= group.max_partition
                if holds and group.max_offset >= offset:
                    bounds = group.min_offset, group.max_offset
                    heappush(ready, (*bounds, next(numbers), group))
        while ready:
            yield heappop(ready)[-1]

    def _footer(self, path: str) -> tuple[RowGroup, ...]:
        groups = self._footers.get(path)
        if groups is not None:
            self._footers.move_to_end(path)
            return groups
        with self._open(path) as source:
            groups = tuple(index_groups(path, source.metadata))
        self._footers[path] = groups
        if len(self._footers) > FOOTERS_MAX:
            self._footers.popitem(last=False)
        return groups

    def _rows(self, groups: Sequence[RowGroup], partition: int) -> pa.RecordBatch:
        tables = []
        for group in groups:
            with self._open(group.path) as source:
                try:
                    table = source.read_row_group(
                        group.index, columns=self._schema.names, use_threads=self._threads
                    )
                except (OSError, pa.ArrowException) as error:
                    raise self._unreadable(group.path, error) from error
            if group.min_partition != group.max_partition:
                table = table.filter(pc.equal(table.column("partition"), partition))
            tables.append(table.cast(self._schema))
        whole = pa.concat_tables(tables).combine_chunks()
        if len(tables) > 1 or not _is_sorted(whole):
            whole = whole.sort_by("offset").combine_chunks()
        batches = whole.to_batches()
        return batches[0] if batches else self._no_rows()

    def _no_rows(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([], schema=self._schema)

    def _open(self, path: str) -> pq.ParquetFile:
        try:
            return pq.ParquetFile(self._files.open_input_file(path), pre_buffer=False)
        except (OSError, pa.ArrowException) as error:
            raise self._unreadable(path, error) from error

    def _unreadable(self, path: str, error: Exception) -> TableAccessError:
        return TableAccessError(f"{self.location.uri}/{path} cannot be read: {error}")


def next_in_group(source: pq.ParquetFile, group: RowGroup, partition: int, offset: int) -> int:
    """The first offset from `offset` on that may have a row in this row group. `NO_OFFSET` without
    one. A group of one partition whose rows are dense is not read."""
    holes = group.max_offset - group.min_offset + 1 - group.rows
    if holes < GAP_MIN or group.min_offset >= offset:
        return max(offset, group.min_offset)
    columns = ["partition", "offset"]
    rows = source.read_row_group(group.index, columns=columns, use_threads=False)
    rows = rows.filter(pc.equal(rows.column("partition"), partition)).column("offset")
    found = pc.min(rows.filter(pc.greater_equal(rows, offset))).as_py()
    return NO_OFFSET if found is None else int(found)


def index_groups(path: str, footer: Any) -> Iterator[RowGroup]:
    """The row groups of a file, from its footer's statistics; for foreign files too."""
    names = [footer.schema.column(i).path for i in range(footer.num_columns)]
    at_partition, at_offset = names.index("partition"), names.index("offset")
    at_time, at_raw = names.index("timestamp"), names.index("timestamp_raw")
    for i in range(footer.num_row_groups):
        group = footer.row_group(i)
        partition, offset = (group.column(at).statistics for at in (at_partition, at_offset))
        if partition is None or offset is None or not offset.has_min_max:
            yield RowGroup(path, i, 0, 1 << 31, 0, 1 << 62, group.num_rows)
        else:
            newest = _newest_ms(group.column(at_time), group.column(at_raw), group.num_rows)
            bounds = (partition.min, partition.max, offset.min, offset.max)
            yield RowGroup(path, i, *bounds, group.num_rows, newest)


def _newest_ms(timestamp: Any, raw: Any, rows: int) -> int | None:
    known, overflowed = timestamp.statistics, raw.statistics
    if known is None or not known.has_min_max or overflowed is None:
        return None
    if overflowed.null_count != rows:
        return None
    try:
        newest = known.max
    except (OverflowError, ValueError):  # beyond the years that datetime has
        return None
    if newest.tzinfo is None:
        newest = newest.replace(tzinfo=UTC)
    return int(newest.timestamp() * 1000) + 1


def _may_hold(live: LiveFile, partition: int, offset: int) -> bool:
    if live.min_partition is not None and partition < live.min_partition:
        return False
    if live.max_partition is not None and partition > live.max_partition:
        return False
    return live.max_offset is None or live.max_offset >= offset


def _is_sorted(table: pa.Table) -> bool:
    offsets = table.column("offset").to_numpy()
    return bool((offsets[1:] > offsets[:-1]).all())
