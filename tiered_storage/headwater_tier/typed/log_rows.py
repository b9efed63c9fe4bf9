"""Reads the log table's rows above given ends: a bounded, fair share of each partition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from headwater_tier.reader import TableReader

COLUMNS = ("partition", "offset", "timestamp", "key", "value")
ROWS_MAX = 500_000
BYTES_MAX = 64 << 20


@dataclass(frozen=True, slots=True)
class LogRows:
    """Rows in (partition, offset) order, and the offset ranges [start, end) they are all of."""

    rows: pa.Table
    ranges: Mapping[int, tuple[int, int]]

    def first(self, count: int) -> LogRows:
        """The first rows, and the ranges that they are all of."""
        if count >= self.rows.num_rows:
            return self
        last = self.rows.column("partition")[count].as_py()
        ranges = {p: span for p, span in self.ranges.items() if p < last}
        start, end = self.ranges[last][0], self.rows.column("offset")[count].as_py()
        if start < end:
            ranges[last] = (start, end)
        return LogRows(self.rows.slice(0, count), ranges)


def rows_above(
    reader: TableReader,
    ends: Mapping[int, int],
    *,
    rows_max: int = ROWS_MAX,
    bytes_max: int = BYTES_MAX,
) -> LogRows | None:
    """The log's rows from `ends` on, None when there is nothing above them.

    Partitions without an end are read from the log's start. Each gets an equal share of the limits,
    and a row group at least.
    """
    pending = pending_ranges(reader, ends)
    if not pending:
        return None
    share_rows = max(1, rows_max // len(pending))
    share_bytes = max(1, bytes_max // len(pending))
    tables: list[pa.Table] = []
    ranges: dict[int, tuple[int, int]] = {}
    for partition, (start, end) in pending.items():
        at = start
        rows = size_bytes = 0
        while at < end and rows < share_rows and size_bytes < share_bytes:
            found = reader.read(partition, at)
            batch = _from(found.rows, at, end)
            tables.append(pa.Table.from_batches([batch.select(list(COLUMNS))]))
            rows += batch.num_rows
            size_bytes += batch.nbytes
            at = min(found.end_offset, end)
        ranges[partition] = (start, at)
    return LogRows(pa.concat_tables(tables), ranges)


def rows_between(
    reader: TableReader, partition: int, start: int, end: int, *, rows_max: int = ROWS_MAX
) -> Iterator[pa.Table]:
    """The rows of one partition in [start, end), in tables of about `rows_max` rows."""
    tables: list[pa.Table] = []
    count = 0
    for batch in reader.rows_between(partition, start, end):
        tables.append(pa.Table.from_batches([batch.select(list(COLUMNS))]))
        count += batch.num_rows
        if count >= rows_max:
            yield pa.concat_tables(tables)
            tables, count = [], 0
    if tables:
        yield pa.concat_tables(tables)


def pending_ranges(reader: TableReader, ends: Mapping[int, int]) -> dict[int, tuple[int, int]]:
    """Per partition, the tiered offsets [start, end) from `ends` on."""
    snapshot = reader.snapshot
    found = {}
    for partition, end in sorted(snapshot.ends.items()):
        start = max(ends.get(partition, 0), snapshot.starts.get(partition, 0))
        if start < end:
            found[partition] = (start, end)
    return found


def _from(rows: pa.RecordBatch, start: int, end: int) -> pa.RecordBatch:
    offsets = rows.column("offset")
    if rows.num_rows and offsets[0].as_py() >= start and offsets[-1].as_py() < end:
        return rows
    return rows.filter(pc.and_(pc.greater_equal(offsets, start), pc.less(offsets, end)))
