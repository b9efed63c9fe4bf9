"""Writes and checks data files: sorted Parquet with row groups of one partition each."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headwater.clock import Clock
from headwater.columnar.decode import decode_batches
from headwater.columnar.schema import LOG_TABLE_COLUMNS, LOG_TABLE_SCHEMA
from headwater.entropy import Entropy
from headwater.errors import HeadwaterError
from headwater_tier.commit_fence import ColumnStats, FileFacts
from headwater_tier.delta import TableAccessError, filesystem, local_path
from headwater_tier.offset_ranges import TierRange
from headwater_tier.schema import STATS_COLUMNS
from headwater_tier.table_names import TableLocation, data_file

ROW_GROUP_ROWS_MAX = 65_536
ROW_GROUP_BYTES_MAX = 8 << 20
"""Of keys, values and headers, before compression. A cold fetch reads a whole row group."""
DICTIONARY_COLUMNS = ("partition", "timestamp_type", "leader_epoch")
COMPRESSION = "lz4"
SAMPLE_BYTES = 64 << 10
SAVING_MIN = 0.1
"""A column of bytes of which compression saves less than this share is stored as it is."""
SAMPLED_COLUMNS = ("key", "value", "headers_raw")


class FileCheckError(HeadwaterError):
    """A data file differs from its task's report. Names the file and the difference."""


class Fetched(NamedTuple):
    """A read-committed fetch: whole record batches and the aborted transactions."""

    records: memoryview | bytes
    aborted: Sequence[tuple[int, int]] = ()
    """(producer_id, first_offset), as in the Fetch response."""


Fetch = Callable[[int, int], Fetched]
"""(partition, offset) -> batches from that offset on, read-committed. Blocking. Must return a batch
that covers `offset` as long as `offset` is below the planned end."""


def tier_range(
    fetch: Fetch,
    ranges: Sequence[TierRange],
    location: TableLocation,
    *,
    clock: Clock,
    entropy: Entropy,
    durable: bool = True,
) -> FileFacts | None:
    """Fetch and decode ranges and write them as one L0 file into the table's folder; its facts.

    None when the ranges have no rows (control records only). Holds one row group in memory. The
    file is durable when this returns; with `durable=False` the caller calls `make_durable` before
    the commit. Needs no Spark.
    """
    ordered = sorted(ranges, key=lambda r: r.partition)
    rows = (batch for planned in ordered for batch in decoded_rows(fetch, planned))
    attempt, now_ms = entropy.uuid(), clock.now_ms()
    return write_file(rows, location, level=0, attempt=attempt, now_ms=now_ms, durable=durable)


def decoded_rows(fetch: Fetch, planned: TierRange) -> Iterator[pa.RecordBatch]:
    """The rows of one range in the log table's columns, one fetch at a time."""
    offset = planned.start_offset
    while offset < planned.end_offset:
        fetched = fetch(planned.partition, offset)
        decoded = decode_batches(
            fetched.records,
            start_offset=offset,
            end_offset=planned.end_offset,
            partition=planned.partition,
            columns=LOG_TABLE_COLUMNS,
            aborted=fetched.aborted,
        )
        if decoded.next_offset <= offset:
            raise HeadwaterError(
                f"a fetch of partition {planned.partition} at offset {offset} returned no whole "
                f"batch ({len(fetched.records)} bytes), although offsets up to "
                f"{planned.end_offset} were committed"
            )
        yield from decoded.chunks
        offset = decoded.next_offset


def write_file(
    rows: Iterable[pa.RecordBatch],
    location: TableLocation,
    *,
    level: int,
    attempt: UUID,
    now_ms: int,
    durable: bool = True,
) -> FileFacts | None:
    """Write rows, sorted by (partition, offset), as one file. None without rows."""
    path = data_file(level, attempt)
    files = filesystem(location)
    facts = _Facts()
    writer: pq.ParquetWriter | None = None
    try:
        for group in row_groups(rows):
            if writer is None:
                writer = _open_writer(path, files, codecs(group))
            facts.add(group)
            writer.write_table(group, row_group_size=ROW_GROUP_ROWS_MAX)
        if writer is None:
            return None
        writer.close()
        size_bytes = files.get_file_info(path).size
        if durable:
            make_durable(location, [path])
    except (OSError, pa.ArrowException) as error:
        raise TableAccessError(f"writing {path} into {location.uri} failed: {error}") from error
    return facts.done(path, size_bytes, now_ms)


def row_groups(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Cut rows into row groups: of one partition each, within the limits of rows and bytes."""
    pending: list[pa.RecordBatch] = []
    count = size_bytes = 0
    partition = -1
    for batch in rows:
        if not batch.num_rows:
            continue
        if pending and batch.column("partition")[0].as_py() != partition:
            yield _table(pending)
            pending, count, size_bytes = [], 0, 0
        partition = batch.column("partition")[0].as_py()
        ends = np.cumsum(_row_bytes(batch))
        at, done = 0, 0
        while at < batch.num_rows:
            by_bytes = int(np.searchsorted(ends, done + ROW_GROUP_BYTES_MAX - size_bytes, "right"))
            stop = min(by_bytes, at + ROW_GROUP_ROWS_MAX - count, batch.num_rows)
            if stop <= at and not pending:
                stop = at + 1  # a row larger than the limit gets a row group of its own
            if stop > at:
                pending.append(batch.slice(at, stop - at))
                count += stop - at
                size_bytes += int(ends[stop - 1]) - done
                at, done = stop, int(ends[stop - 1])
            if at < batch.num_rows:
                yield _table(pending)
                pending, count, size_bytes = [], 0, 0
    if pending:
        yield _table(pending)


def check_file(location: TableLocation, facts: FileFacts) -> None:
    """Compare a file with its task's report: size, footer schema, rows, ranges.

    deltalake does not validate an AddAction. Raises FileCheckError.
    """
    files = filesystem(location)
    try:
        size_bytes = files.get_file_info(facts.path).size
        if size_bytes != facts.size_bytes:
            raise FileCheckError(
                f"{facts.path} in {location.uri} has {size_bytes} bytes, "
                f"its task wrote {facts.size_bytes}"
            )
        with files.open_input_file(facts.path) as source:
            footer = pq.read_metadata(source)
    except (OSError, pa.ArrowException) as error:
        raise FileCheckError(f"{facts.path} in {location.uri} is unreadable: {error}") from error
    if not footer.schema.to_arrow_schema().equals(LOG_TABLE_SCHEMA):
        raise FileCheckError(f"{facts.path} in {location.uri} has another schema")
    found = merge_ranges(group_ranges(footer))
    if footer.num_rows != facts.rows or found != facts.ranges:
        raise FileCheckError(
            f"{facts.path} in {location.uri} holds {footer.num_rows} rows, {found}; "
            f"its task reported {facts.rows}, {facts.ranges}"
        )


def group_ranges(footer: pq.FileMetaData) -> list[tuple[int, int, int, int]]:
    """(partition, first offset, last offset, rows) of each row group, from its statistics."""
    names = [footer.schema.column(i).path for i in range(footer.num_columns)]
    at_partition, at_offset = names.index("partition"), names.index("offset")
    ranges = []
    for i in range(footer.num_row_groups):
        group = footer.row_group(i)
        partition = group.column(at_partition).statistics
        offset = group.column(at_offset).statistics
        if partition is None or offset is None or partition.min != partition.max:
            raise FileCheckError(f"row group {i} spans partitions or has no statistics")
        ranges.append((partition.min, offset.min, offset.max, group.num_rows))
    return ranges


def merge_ranges(
    groups: Iterable[tuple[int, int, int, int]],
) -> tuple[tuple[int, int, int, int], ...]:
    """One (partition, first, last, rows) per partition, sorted."""
    merged: dict[int, tuple[int, int, int]] = {}
    for partition, first, last, rows in groups:
        seen = merged.get(partition, (first, last, 0))
        merged[partition] = (min(seen[0], first), max(seen[1], last), seen[2] + rows)
    return tuple((p, *merged[p]) for p in sorted(merged))


@dataclass(slots=True)
class _Facts:
    """The facts of a file, collected while it is written."""

    rows: int = 0
    ranges: list[tuple[int, int, int, int]] = field(default_factory=list)
    stats: dict[str, ColumnStats] = field(default_factory=dict)

    def add(self, group: pa.Table) -> None:
        for name in STATS_COLUMNS:
            column = group.column(name)
            if name == "timestamp":
                column = column.cast(pa.int64())
            bounds = pc.min_max(column)
            new = ColumnStats(bounds["min"].as_py(), bounds["max"].as_py(), column.null_count)
            self.stats[name] = _merged(self.stats.get(name), new)
            if name == "offset" and (new.minimum is not None and new.maximum is not None):
                partition = group.column("partition")[0].as_py()
                self.ranges.append((partition, new.minimum, new.maximum, group.num_rows))
        self.rows += group.num_rows

    def done(self, path: str, size_bytes: int, now_ms: int) -> FileFacts:
        stats = tuple(self.stats.items())
        return FileFacts(path, size_bytes, self.rows, now_ms, merge_ranges(self.ranges), stats)


def _merged(old: ColumnStats | None, new: ColumnStats) -> ColumnStats:
    if old is None:
        return new
    lows = [v for v in (old.minimum, new.minimum) if v is not None]
    highs = [v for v in (old.maximum, new.maximum) if v is not None]
    return ColumnStats(min(lows, default=None), max(highs, default=None), old.nulls + new.nulls)


def _row_bytes(batch: pa.RecordBatch) -> Any:
    sizes = np.zeros(batch.num_rows, np.int64)
    for name in ("key", "value", "headers_raw"):
        column = batch.column(name)
        if column.null_count < batch.num_rows:
            sizes += pc.binary_length(column).fill_null(0).to_numpy(zero_copy_only=False)
    headers = batch.column("headers")
    if headers.null_count < batch.num_rows:
        sizes += headers.nbytes // batch.num_rows  # an average: headers are small
    return sizes


def _table(batches: list[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches([batch.cast(LOG_TABLE_SCHEMA) for batch in batches])


def codecs(group: pa.Table) -> dict[str, str]:
    """The codec of each column, by a sample of the first row group's values. Pure."""
    found = dict.fromkeys(LOG_TABLE_SCHEMA.names, COMPRESSION)
    for name in SAMPLED_COLUMNS:
        if _is_incompressible(group.column(name)):
            found[name] = "none"
    return found


def _is_incompressible(column: pa.ChunkedArray) -> bool:
    chunk = next((c for c in column.chunks if c.null_count < len(c)), None)
    if chunk is None:
        return False
    values = pc.drop_null(chunk.slice(0, SAMPLE_BYTES))
    data = values.buffers()[2]
    offsets = np.frombuffer(values.buffers()[1], np.int32)[values.offset :][: len(values) + 1]
    sample = data[int(offsets[0]) : min(int(offsets[-1]), int(offsets[0]) + SAMPLE_BYTES)]
    if not sample:
        return False
    return len(pa.compress(sample, COMPRESSION, asbytes=True)) > (1 - SAVING_MIN) * len(sample)


def _open_writer(path: str, files: Any, compression: dict[str, str]) -> pq.ParquetWriter:
    return pq.ParquetWriter(
        path,
        LOG_TABLE_SCHEMA,
        filesystem=files,
        compression=compression,
        use_dictionary=list(DICTIONARY_COLUMNS),
        write_statistics=list(STATS_COLUMNS),
        write_page_index=True,
    )


def make_durable(location: TableLocation, paths: Sequence[str]) -> None:
    """fsync files and their folder in a local table, before the commit that refers to them."""
    folder = local_path(location.uri)
    if folder is None or not paths:
        return
    for target in (*(os.path.join(folder, path) for path in paths), folder):
        handle = os.open(target, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
