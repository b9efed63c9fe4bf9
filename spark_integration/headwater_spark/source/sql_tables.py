"""The data source's part for SQL tables: their schema, which holds the options, and INSERT INTO.

`table_options` has the rules; this module has the classes of pyspark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructField, StructType

from headwater.columnar.schema import KAFKA_COLUMNS, arrow_schema
from headwater_spark.sink.writer import BatchSink
from headwater_spark.source.table_options import (
    CARRIER,
    METADATA_KEY,
    created_options,
    sink_given,
    stored_options,
    without_read_only,
    writable,
)
from headwater_spark.worker_errors import without_traceback


def table_schema(include_headers: bool, given: Mapping[str, str]) -> StructType:
    """The columns of a table that is created, with its checked options. Raises UsageError."""
    options = created_options(given)
    names = [name for name in KAFKA_COLUMNS if include_headers or name != "headers"]
    fields = []
    for field in from_arrow_schema(arrow_schema(names)).fields:
        metadata = {METADATA_KEY: options} if field.name == CARRIER else None
        fields.append(StructField(field.name, field.dataType, True, metadata))
    return StructType(fields)


def options_in(schema: StructType) -> dict[str, str] | None:
    """The options of the table that has this schema; None for any other schema."""
    return stored_options({field.name: field.metadata or {} for field in schema.fields})


def batch_sink(
    given: Mapping[str, str], schema: StructType, overwrite: bool
) -> DataSourceArrowWriter:
    """The writer of a DataFrame, or of an INSERT INTO a table."""
    stored = options_in(schema)
    options = sink_given(stored, given)
    if stored is None:
        return BatchSink.of(options, schema, overwrite)
    names = writable(schema.names)
    columns = StructType([field for field in schema.fields if field.name in names])
    return InsertSink(BatchSink.of(options, columns, overwrite))


class InsertSink(DataSourceArrowWriter):
    """INSERT INTO a table: `sink` gets the rows without the columns that brokers set."""

    def __init__(self, sink: BatchSink) -> None:
        self.sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """One task's rows, as `sink` writes them."""
        with without_traceback():
            return self.sink.write(without_read_only(iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """As of `sink`."""
        self.sink.commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """As of `sink`."""
        self.sink.abort(messages)
