"""Compares a topic with its table: row counts, order-independent checksums, differing offsets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headwater.columnar.row_hash import row_hashes
from headwater.columnar.schema import LOG_TABLE_COLUMNS, LOG_TABLE_SCHEMA
from headwater_tier.delta import LogTable, TableAccessError, filesystem, may_use_threads
from headwater_tier.reader import index_groups, next_in_group
from headwater_tier.table_names import TableLocation

NAMED_MAX = 20
"""Offsets listed per kind of difference; the counts are complete."""


@dataclass(frozen=True, slots=True)
class Digest:
    """Count and checksum of a set of rows, in any order. Equal sets have equal digests.

    `checksum` is the sum modulo 2**64 of each row's 64-bit hash (`headwater.columnar.row_hash`)
    over partition, offset, timestamp in ms, key, value and headers (nulls differ from empty).
    """

    rows: int
    checksum: int

    def __add__(self, other: Digest) -> Digest:
        """The digest of the union of both sets."""
        return Digest(self.rows + other.rows, (self.checksum + other.checksum) % (1 << 64))


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """The comparison of one partition's offsets [start_offset, end_offset).

    The lists hold the first NAMED_MAX offsets.
    """

    partition: int
    start_offset: int
    end_offset: int
    topic_digest: Digest
    table_digest: Digest
    missing: tuple[int, ...] = ()
    doubled: tuple[int, ...] = ()
    altered: tuple[int, ...] = ()
    foreign: tuple[int, ...] = ()
    """In the table but not in the topic."""
    counts: tuple[int, int, int, int] = (0, 0, 0, 0)
    """The numbers of missing, doubled, altered and foreign offsets."""

    @property
    def equal(self) -> bool:
        """True without any difference."""
        return not any(self.counts) and self.topic_digest == self.table_digest

    def __add__(self, other: PartitionReport) -> PartitionReport:
        """The report of this range and the following one together."""
        return PartitionReport(
            self.partition,
            self.start_offset,
            other.end_offset,
            self.topic_digest + other.topic_digest,
            self.table_digest + other.table_digest,
            (self.missing + other.missing)[:NAMED_MAX],
            (self.doubled + other.doubled)[:NAMED_MAX],
            (self.altered + other.altered)[:NAMED_MAX],
            (self.foreign + other.foreign)[:NAMED_MAX],
            tuple(a + b for a, b in zip(self.counts, other.counts, strict=True)),  # type: ignore[arg-type]
        )


def digest(batches: Iterable[pa.RecordBatch], *, partition: int | None = None) -> Digest:
    """The digest of rows in the log table's or Kafka's columns (`headwater.columnar.schema`)."""
    rows, checksum = 0, 0
    for batch in batches:
        if partition is not None:
            batch = batch.filter(pc.equal(batch.column("partition"), partition))
        if batch.num_rows:
            rows += batch.num_rows
            checksum += int(row_hashes(batch).sum(dtype=np.uint64))
    return Digest(rows, checksum % (1 << 64))


def compare(
    partition: int,
    start_offset: int,
    end_offset: int,
    topic: Iterable[pa.RecordBatch],
    table: Iterable[pa.RecordBatch],
) -> PartitionReport:
    """Compare one partition's rows, both in any order. Takes 16 bytes of memory per row."""
    topic_offsets, topic_hashes = _sorted_hashes(topic)
    table_offsets, table_hashes = _sorted_hashes(table)
    once, first, times = np.unique(table_offsets, return_index=True, return_counts=True)
    doubled = once[times > 1]
    missing = np.setdiff1d(topic_offsets, once)
    foreign = np.setdiff1d(once, topic_offsets)
    _, at_topic, at_once = np.intersect1d(
        topic_offsets, once, assume_unique=True, return_indices=True
    )
    differs = topic_hashes[at_topic] != table_hashes[first[at_once]]
    altered = topic_offsets[at_topic][differs]
    return PartitionReport(
        partition,
        start_offset,
        end_offset,
        _digest_of(topic_hashes),
        _digest_of(table_hashes),
        _named(missing),
        _named(doubled),
        _named(altered),
        _named(foreign),
        (len(missing), len(doubled), len(altered), len(foreign)),
    )


def _named(offsets: Any) -> tuple[int, ...]:
    return tuple(offsets[:NAMED_MAX].tolist())


class TableScan:
    """The live rows of a table, unsorted, and without the checks that refuse a changed table."""

    def __init__(self, location: TableLocation) -> None:
        """Open the newest version. Raises TableAccessError."""
        self.location = location
        self.snapshot = LogTable(location, checked=False).snapshot
        self._files = filesystem(location)
        self._footers: dict[str, pq.FileMetaData] = {}

    def rows(self, partition: int, start_offset: int, end_offset: int) -> Iterator[pa.RecordBatch]:
        """The partition's rows in the offset range."""
        for live in self.snapshot.files:
            footer = self._footer(live.path)
            wanted = [
                group.index
                for group in index_groups(live.path, footer)
                if group.min_partition <= partition <= group.max_partition
                and group.max_offset >= start_offset
                and group.min_offset < end_offset
            ]
            for index in wanted:
                yield from self._group(live.path, index, partition, start_offset, end_offset)

    def next_offset(self, partition: int, offset: int, end: int) -> int:
        """The first offset in [offset, end) that may have a row; `end` without one."""
        nearest = end
        for live in self.snapshot.files:
            footer = self._footer(live.path)
            for group in index_groups(live.path, footer):
                holds = group.min_partition <= partition <= group.max_partition
                if holds and offset <= group.max_offset and group.min_offset < nearest:
                    with self._open(live.path, footer) as source:
                        nearest = min(nearest, next_in_group(source, group, partition, offset))
        return nearest

    def _group(
        self, path: str, index: int, partition: int, start_offset: int, end_offset: int
    ) -> Iterator[pa.RecordBatch]:
        try:
            with self._open(path, self._footer(path)) as source:
                table = source.read_row_group(
                    index,
                    columns=list(LOG_TABLE_COLUMNS),
                    use_threads=may_use_threads(self.location),
                )
        except (OSError, pa.ArrowException) as error:
            raise self._unreadable(path, error) from error
        offsets = table.column("offset")
        keep = pc.and_(
            pc.and_(pc.greater_equal(offsets, start_offset), pc.less(offsets, end_offset)),
            pc.equal(table.column("partition"), partition),
        )
        yield from table.filter(keep).cast(LOG_TABLE_SCHEMA).to_batches()

    def _open(self, path: str, footer: pq.FileMetaData) -> pq.ParquetFile:
        try:
            return pq.ParquetFile(self._files.open_input_file(path), metadata=footer)
        except (OSError, pa.ArrowException) as error:
            raise self._unreadable(path, error) from error

    def _footer(self, path: str) -> pq.FileMetaData:
        if path not in self._footers:
            try:
                with self._files.open_input_file(path) as source:
                    self._footers[path] = pq.read_metadata(source)
            except (OSError, pa.ArrowException) as error:
                raise self._unreadable(path, error) from error
        return self._footers[path]

    def _unreadable(self, path: str, error: Exception) -> TableAccessError:
        return TableAccessError(f"{self.location.uri}/{path} cannot be read: {error}")


def table_rows(
    location: TableLocation, partition: int, start_offset: int, end_offset: int
) -> Iterator[pa.RecordBatch]:
    """The partition's live rows in the offset range, unchecked and in any order."""
    return TableScan(location).rows(partition, start_offset, end_offset)


def describe(report: PartitionReport) -> list[str]:
    """A line per kind of difference, with offsets; empty when the partition is equal."""
    names = ("missing from the table", "more than once in the table", "altered", "not in the topic")
    lists: Sequence[tuple[int, ...]] = (
        report.missing,
        report.doubled,
        report.altered,
        report.foreign,
    )
    lines = []
    for name, offsets, count in zip(names, lists, report.counts, strict=True):
        if count:
            shown = ", ".join(map(str, offsets)) + (", ..." if count > len(offsets) else "")
            lines.append(f"partition {report.partition}: {count} {name}: offsets {shown}")
    if not lines and not report.equal:
        lines.append(f"partition {report.partition}: checksums differ")
    return lines


def _sorted_hashes(batches: Iterable[pa.RecordBatch]) -> tuple[Any, Any]:
    offsets, hashes = [np.empty(0, np.int64)], [np.empty(0, np.uint64)]
    for batch in batches:
        if batch.num_rows:
            offsets.append(batch.column("offset").to_numpy())
            hashes.append(row_hashes(batch))
    all_offsets, all_hashes = np.concatenate(offsets), np.concatenate(hashes)
    order = np.argsort(all_offsets, kind="stable")
    return all_offsets[order], all_hashes[order]


def _digest_of(hashes: Any) -> Digest:
    return Digest(len(hashes), int(hashes.sum(dtype=np.uint64)))
