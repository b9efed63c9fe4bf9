"""Reads a split's rows from the log table's Parquet files, in Kafka's columns. No pyspark.

A row group has rows of one partition, and its statistics have the offsets: only row groups that
overlap the split are read. Headwater's files are sorted by (partition, offset) and disjoint per
partition. A user's OPTIMIZE may have shuffled rows: overlapping row groups are sorted together.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headwater.columnar.schema import arrow_schema
from headwater_spark.source.cold_files import ColdFiles
from headwater_spark.source.input_partitions import Split
from headwater_tier.delta import TableAccessError, filesystem, may_use_threads
from headwater_tier.reader import RowGroup, index_groups

OWN_FILES = ("l0-", "l1-")
"""Prefixes of Headwater's files, sorted, with row groups of one partition each
(headwater_tier.table_names)."""

# Kafka's column -> the log table's column.
_TABLE_NAMES = {"timestampType": "timestamp_type"}


def table_columns(columns: tuple[str, ...]) -> list[str]:
    """The log table's columns for these columns of Kafka's; `topic` is a constant."""
    return [_TABLE_NAMES.get(name, name) for name in columns if name != "topic"]


def to_kafka_columns(batch: pa.RecordBatch, topic: str, columns: tuple[str, ...]) -> pa.RecordBatch:
    """A batch of log-table rows in Kafka's columns."""
    schema = arrow_schema(columns)
    arrays = []
    for field in schema:
        if field.name == "topic":
            arrays.append(pa.repeat(pa.scalar(topic, pa.string()), batch.num_rows))
            continue
        array = batch.column(_TABLE_NAMES.get(field.name, field.name))
        arrays.append(array if array.type.equals(field.type) else array.cast(field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def cold_batches(
    split: Split, files: ColdFiles, columns: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    """The split's rows in offset order."""
    reader = _Groups(split, files, columns)
    try:
        for overlapping in in_order(reader.groups()):
            yield from reader.rows(overlapping)
    finally:
        reader.close()


def in_order(groups: list[RowGroup]) -> Iterator[list[RowGroup]]:
    """Row groups in offset order, as lists of groups whose offsets overlap each other."""
    pending: list[RowGroup] = []
    reach = -1
    for group in sorted(groups, key=lambda g: (g.min_offset, g.max_offset)):
        if pending and group.min_offset > reach:
            yield pending
            pending = []
        pending.append(group)
        reach = max(reach, group.max_offset)
    if pending:
        yield pending


class _Groups:
    """The row groups of a split, and their open files."""

    def __init__(self, split: Split, files: ColdFiles, columns: tuple[str, ...]) -> None:
        self._split = split
        self._files = files
        self._columns = columns
        self._filesystem = filesystem(files.location)
        self._open: dict[str, pq.ParquetFile] = {}

    def close(self) -> None:
        for source in self._open.values():
            source.close()

    def groups(self) -> list[RowGroup]:
        """The row groups that may hold rows of the split, by the footers' statistics."""
        found = []
        for live in self._files.files:
            source = self._source(live.path)
            for group in index_groups(live.path, source.metadata):
                holds = group.min_partition <= self._split.partition <= group.max_partition
                before = group.max_offset < self._split.start_offset
                if holds and not before and group.min_offset < self._split.end_offset:
                    found.append(group)
        return found

    def rows(self, groups: list[RowGroup]) -> Iterator[pa.RecordBatch]:
        """The split's rows of overlapping groups, sorted by offset."""
        is_plain = len(groups) == 1 and self._is_inside(groups[0])
        wanted = table_columns(self._columns)
        if not is_plain:
            wanted = [*wanted, *(c for c in ("partition", "offset") if c not in wanted)]
        tables = [self._read(group, wanted) for group in groups]
        whole = pa.concat_tables(tables) if len(tables) > 1 else tables[0]
        if not is_plain:
            whole = _only(whole, self._split)
            whole = whole if _is_sorted(whole) else whole.sort_by("offset")
        for batch in whole.to_batches():
            yield to_kafka_columns(batch, self._split.topic, self._columns)

    def _is_inside(self, group: RowGroup) -> bool:
        """True when all rows are the split's and sorted: a row group that Headwater wrote."""
        return (
            group.min_partition == group.max_partition
            and group.min_offset >= self._split.start_offset
            and group.max_offset < self._split.end_offset
            and group.path.startswith(OWN_FILES)
        )

    def _read(self, group: RowGroup, columns: list[str]) -> pa.Table:
        try:
            source, threads = self._source(group.path), may_use_threads(self._files.location)
            return source.read_row_group(group.index, columns=columns, use_threads=threads)
        except (OSError, pa.ArrowException) as e:
            raise self._unreadable(group.path, e) from e

    def _source(self, path: str) -> pq.ParquetFile:
        if path not in self._open:
            try:
                self._open[path] = pq.ParquetFile(self._filesystem.open_input_file(path))
            except (OSError, pa.ArrowException) as e:
                raise self._unreadable(path, e) from e
        return self._open[path]

    def _unreadable(self, path: str, error: Exception) -> TableAccessError:
        uri = self._files.location.uri
        return TableAccessError(
            f"{uri}/{path} (version {self._files.version}) cannot be read: {error}"
        )


def _only(rows: pa.Table, split: Split) -> pa.Table:
    """The rows of the split."""
    offset = rows.column("offset")
    in_range = pc.and_(
        pc.greater_equal(offset, split.start_offset), pc.less(offset, split.end_offset)
    )
    return rows.filter(pc.and_(pc.equal(rows.column("partition"), split.partition), in_range))


def _is_sorted(rows: pa.Table) -> bool:
    offsets = rows.column("offset").to_numpy()
    return bool((offsets[1:] > offsets[:-1]).all())
