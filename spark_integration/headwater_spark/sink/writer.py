"""Writers of `format("headwater")` for Spark's Python Data Source API, batch and streaming.

Columns as in Spark's Kafka sink: `value` (binary or string), and optionally `key`, `headers`,
`topic`, `partition`. At least once: a task returns only when all in-sync replicas have its rows, so
`commit` has nothing to do, and `abort` cannot remove them. A micro-batch that runs again is
written again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from headwater.columnar.schema import HEADERS
from headwater.errors import UsageError
from headwater.system import SystemClock
from headwater_spark.sink.sink_options import SinkOptions, sink_options
from headwater_spark.sink.write_task import Written, write
from headwater_spark.worker_errors import without_traceback

logger = logging.getLogger(__name__)

_TEXT_OR_BYTES = ("binary", "string")
_COLUMNS = {
    "key": _TEXT_OR_BYTES,
    "value": _TEXT_OR_BYTES,
    "topic": ("string",),
    "partition": ("int32",),
    "headers": (str(HEADERS),),
}


@dataclass
class SinkMessage(WriterCommitMessage):
    """A task's commit message."""

    written: Written


def check_sink(schema: pa.Schema, options: SinkOptions, overwrite: bool) -> None:
    """Check schema and options before any task runs. Raises UsageError with a remedy."""
    if overwrite:
        raise UsageError('a topic can only be appended to: use .mode("append")')
    for column in schema:
        accepted = _COLUMNS.get(column.name)
        if accepted is None:
            raise UsageError(
                f"a headwater sink has no column {column.name!r}, only {', '.join(_COLUMNS)}: put"
                " your columns into value, for example with to_json(struct(*))"
            )
        if _type_name(column.type) not in accepted:
            raise UsageError(
                f"column {column.name!r} must be {' or '.join(accepted)}, not {column.type}"
            )
    if "value" not in schema.names:
        raise UsageError("a headwater sink needs a column 'value'")
    if options.topic is None and "topic" not in schema.names:
        raise UsageError("name the topic in option 'topic' or in a column 'topic'")


class _TaskWrites:
    """The part of both writers that runs in tasks."""

    def __init__(self, options: SinkOptions) -> None:
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SinkMessage:
        """One task's rows; returns when they are acknowledged, raises otherwise."""
        with without_traceback():
            return SinkMessage(write(iterator, self.options, SystemClock()))


class BatchSink(_TaskWrites, DataSourceArrowWriter):
    """A batch write."""

    @classmethod
    def of(cls, given: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchSink:
        """A writer of checked options and schema."""
        return cls(_checked(given, schema, overwrite))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Does nothing: every row is acknowledged."""

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Warn of the rows that stay in the topics."""
        _warn(messages)


class StreamSink(_TaskWrites, DataSourceStreamArrowWriter):
    """A streaming write."""

    @classmethod
    def of(cls, given: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamSink:
        """A writer of checked options and schema. Spark's `overwrite` only repeats the mode."""
        return cls(_checked(given, schema, False))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Does nothing: every row is acknowledged."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Warn of the rows that stay in the topics; the batch's next run writes them again."""
        _warn(messages)


def _checked(given: Mapping[str, str], schema: StructType, overwrite: bool) -> SinkOptions:
    options = sink_options(given)
    check_sink(to_arrow_schema(schema, timezone="UTC"), options, overwrite)
    return options


def _type_name(kind: pa.DataType) -> str:
    if pa.types.is_list(kind):
        is_pair = pa.types.is_struct(kind.value_type) and [
            (f.name, str(f.type)) for f in kind.value_type
        ] == [("key", "string"), ("value", "binary")]
        return str(HEADERS) if is_pair else str(kind)
    return str(kind)


def _warn(messages: list[WriterCommitMessage | None]) -> None:
    rows = sum(m.written.rows for m in messages if isinstance(m, SinkMessage))
    if rows:
        logger.warning("%d rows of a failed write stay in their topics (at least once)", rows)
