"""`format("headwater")` for writing: at least once, batch and streaming, Arrow in the tasks.

Columns as in Spark's Kafka sink: `value` (binary or string), and if present `key`, `headers`,
`topic`, `partition`. A task returns only when its rows are acknowledged by all in-sync replicas;
`commit` and `abort` have nothing to do, as what is written can't be taken back. A micro-batch that
runs again is written again: consumers that must not see that need the exactly-once sink.
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
from headwater_spark.options import SinkOptions, sink_options
from headwater_spark.plain_errors import message_alone
from headwater_spark.sink.write_task import Written, write

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
    """What a task wrote."""

    written: Written


def check_sink(schema: pa.Schema, options: SinkOptions, overwrite: bool) -> None:
    """Refuse at planning time what could only fail in tasks. Raises UsageError with the remedy."""
    if overwrite:
        raise UsageError('a topic can only be appended to: use .mode("append")')
    for column in schema:
        accepted = _COLUMNS.get(column.name)
        if accepted is None:
            raise UsageError(
                f"a headwater sink has no column {column.name!r}; there are {', '.join(_COLUMNS)}."
                " Put your columns into value, for example with to_json(struct(*))"
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
    """What both writers do in a task and with its message."""

    def __init__(self, options: SinkOptions) -> None:
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SinkMessage:
        """One task's rows; returns when they are acknowledged, raises otherwise."""
        with message_alone():
            return SinkMessage(write(iterator, self.options, SystemClock()))


class BatchSink(_TaskWrites, DataSourceArrowWriter):
    """A batch write."""

    @classmethod
    def of(cls, given: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchSink:
        """From what Spark hands over, checked."""
        return cls(_checked(given, schema, overwrite))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Everything is acknowledged already."""

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Tell what stays in the topics: at-least-once writes can't be taken back."""
        _warn(messages)


class StreamSink(_TaskWrites, DataSourceStreamArrowWriter):
    """A streaming write."""

    @classmethod
    def of(cls, given: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamSink:
        """From what Spark hands over, checked. (Spark's `overwrite` only echoes the mode.)"""
        return cls(_checked(given, schema, False))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Everything is acknowledged already."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Tell what stays in the topics: the batch runs again and writes it again."""
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
        logger.warning("a failed write left %d rows in its topics (at least once)", rows)
