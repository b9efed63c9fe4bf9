"""A split's rows out of the log table's Parquet files, in Kafka's columns. No pyspark.

Row groups never span partitions, and their statistics name partition and offsets: only those that
overlap the split are read. Files are sorted by (partition, offset) and disjoint per partition, but
a user's OPTIMIZE may have shuffled them: overlapping files are merged by a sort.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from headwater.columnar.schema import arrow_schema
from headwater_spark.history import ColdFiles
from headwater_spark.planning import Split

# Kafka's column -> the log table's.
_TABLE_NAMES = {"timestampType": "timestamp_type"}


def table_columns(columns: tuple[str, ...]) -> list[str]:
    """The log table's columns that make up Kafka's `columns` (topic is a constant)."""
    return [_TABLE_NAMES.get(name, name) for name in columns if name != "topic"]


def to_kafka_columns(batch: pa.RecordBatch, topic: str, columns: tuple[str, ...]) -> pa.RecordBatch:
    """Log-table rows as Kafka's columns."""
    schema = arrow_schema(columns)
    arrays = []
    for field in schema:
        if field.name == "topic":
            arrays.append(pa.repeat(pa.scalar(topic, pa.string()), batch.num_rows))
            continue
        array = batch.column(_TABLE_NAMES.get(field.name, field.name))
        arrays.append(array if array.type.equals(field.type) else array.cast(field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def in_split(batch: pa.RecordBatch, split: Split) -> pa.RecordBatch:
    """Only the split's rows; no copy when all are."""
    if not batch.num_rows:
        return batch
    partition, offset = batch.column("partition"), batch.column("offset")
    partitions, offsets = pc.min_max(partition).as_py(), pc.min_max(offset).as_py()
    is_partition = partitions["min"] == partitions["max"] == split.partition
    if is_partition and split.start_offset <= offsets["min"] and offsets["max"] < split.end_offset:
        return batch
    wanted = pc.and_(
        pc.equal(partition, split.partition),
        pc.and_(pc.greater_equal(offset, split.start_offset), pc.less(offset, split.end_offset)),
    )
    return batch.filter(wanted)


def cold_batches(
    split: Split, files: ColdFiles, columns: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    """The split's rows in offset order."""
    raise NotImplementedError
