"""`format("headwater")`: the data source for Spark's Python Data Source API, batch and streaming.

A thin adapter: options, positions, planning and reading are modules without pyspark. Offsets follow
the rules of `positions`: the initial offset is a constant, batch 0 pins the start, and a batch is
planned from its end offset alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping
from typing import Any, NoReturn

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    DataSourceWriter,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from headwater.clock import Clock
from headwater.errors import UsageError
from headwater.system import SystemClock
from headwater_spark.sink.writer import StreamSink
from headwater_spark.source import positions
from headwater_spark.source.batch_limits import is_too_small, limit_ends
from headwater_spark.source.batch_planner import PlannedSplit, Planner
from headwater_spark.source.columns import checked_schema, source_ddl
from headwater_spark.source.positions import Position
from headwater_spark.source.pushdown import Comparison, ReadWindow, read_window
from headwater_spark.source.read_task import CLIENT_ID, ReadTask, read
from headwater_spark.source.share_options import has_share_group, share_options
from headwater_spark.source.share_reader import ShareStreamReader
from headwater_spark.source.source_options import SourceOptions, source_options
from headwater_spark.source.sql_tables import batch_sink, options_in, table_schema
from headwater_spark.source.table_options import is_create_table, source_given
from headwater_spark.task_security import TaskSecurity
from headwater_spark.task_tokens import TOKENS
from headwater_spark.worker_errors import without_traceback

FORMAT_NAME = "headwater"
HELD_S = 0.1
"""How long a batch that `minOffsetsPerTrigger` holds back is held without a look at the brokers."""


class HeadwaterDataSource(DataSource):
    """Reads and writes topics of a Headwater (or Kafka) cluster."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        """The options are checked when Spark asks for a reader or writer."""
        self.options = options

    @classmethod
    def name(cls) -> str:
        """The name for `format(...)`."""
        return FORMAT_NAME

    @without_traceback()
    def schema(self) -> str | StructType:
        """Kafka's columns, with headers if `includeHeaders` is true; of a table, with its options.

        Raises UsageError for wrong options of a CREATE TABLE.
        """
        include_headers = str(self.options.get("includeHeaders", "false")).lower() == "true"
        if is_create_table(self.options):
            return table_schema(include_headers, self.options)
        return source_ddl(include_headers)

    @without_traceback()
    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read."""
        given = source_given(options_in(schema), self.options)
        if has_share_group(given):
            share_options(given, streaming=False)  # refuses
        options = source_options(given, streaming=False)
        # Spark refuses a reader with `pushFilters` in every session whose setting
        # spark.sql.python.filterPushdown.enabled is false, which is the default.
        kind = PushdownReader if options.pushdown else BatchReader
        return kind(options, _arrow(schema))

    @without_traceback()
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's
        """A streaming read; wrong options raise when the query starts (RefusedReader)."""
        try:
            given = source_given(options_in(schema), self.options)
            if has_share_group(given):
                return ShareStreamReader(share_options(given, streaming=True), _arrow(schema))
            options = source_options(given, streaming=True)
        except UsageError as refusal:
            return RefusedReader(refusal)
        return StreamReader(options, _arrow(schema))

    @without_traceback()
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A batch write, or INSERT INTO a table: one transaction, if delivery is exactly once."""
        return batch_sink(self.options, schema, overwrite)

    @without_traceback()
    def streamWriter(  # noqa: N802 - Spark's
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamArrowWriter:
        """A streaming write: an epoch per micro-batch, if delivery is exactly once."""
        return StreamSink.of(self.options, schema, overwrite)


class SplitPartition(InputPartition):
    """Spark's input partition that holds a planned split, and how its task logs in."""

    def __init__(self, planned: PlannedSplit, security: TaskSecurity) -> None:
        self.planned = planned
        self.security = security


class _TaskReads:
    """The part of both readers that runs in tasks."""

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        self.options = options
        self.schema = schema

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The split's rows."""
        if not isinstance(partition, SplitPartition):
            return iter(())  # Spark's placeholder for an empty plan
        return self._rows(partition)

    def _partitions(self, planned: Iterable[PlannedSplit]) -> list[SplitPartition]:
        security = TOKENS.of(self.options.bootstrap_servers, self.options.security)
        return [SplitPartition(split, security) for split in planned]

    def _rows(self, partition: SplitPartition) -> Iterator[pa.RecordBatch]:
        planned = partition.planned
        task = ReadTask(
            split=planned.split,
            bootstrap_servers=self.options.bootstrap_servers,
            isolation_level=self.options.isolation_level,
            fail_on_data_loss=self.options.fail_on_data_loss,
            schema=self.schema,
            files=planned.files,
            timeouts=self.options.timeouts,
            client_id=self.options.client_id or CLIENT_ID,
            security=partition.security,
        )
        with without_traceback():
            yield from read(task)


class BatchReader(_TaskReads, DataSourceReader):
    """Plans a batch read once, in the driver's planner process."""

    window: ReadWindow | None = None
    """The offsets that the query's filters let through; None when Spark gives no filters."""

    @without_traceback()
    def partitions(self) -> list[SplitPartition]:
        """The splits between the bounds, which are resolved now."""
        planner = Planner(self.options, SystemClock())
        try:
            return self._partitions(planner.splits(planner.batch(self.window)))
        finally:
            planner.close()


class PushdownReader(BatchReader):
    """A batch read with `pushdown=true`: leaves out offsets that no filter lets through."""

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802 - Spark's
        """Take the filters for planning, and leave all of them to Spark as well."""
        self.window = read_window([c for f in filters if (c := _comparison(f)) is not None])
        return filters


class RefusedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Stands for a reader with wrong options: raises their error in every method.

    Spark 4.2 loses an error of `streamReader` itself and shows an UnboundLocalError of its runner.
    """

    def __init__(self, refusal: UsageError) -> None:
        self._refusal = refusal

    @without_traceback()
    def _refuse(self) -> NoReturn:
        raise self._refusal

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's
        """Raises UsageError."""
        self._refuse()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's
        """Raises UsageError."""
        self._refuse()

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's
        """Raises UsageError."""
        self._refuse()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Raises UsageError."""
        self._refuse()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Raises UsageError."""
        self._refuse()


class StreamReader(_TaskReads, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches. One instance per query run, in a process of its own."""

    def __init__(
        self,
        options: SourceOptions,
        schema: pa.Schema,
        *,
        clock: Clock | None = None,
        planner: Planner | None = None,
    ) -> None:
        """`clock` and `planner` are for tests."""
        super().__init__(options, schema)
        self._clock = clock or SystemClock()
        self._opened = planner
        self._held_at = float("-inf")
        self._held_from: dict[str, Any] | None = None
        self._newest: dict[str, Any] | None = None
        self._target: dict[tuple[str, int], int] | None = None
        self._triggered_at = float("-inf")

    @property
    def _planner(self) -> Planner:
        # Not in __init__: Spark also makes a reader to pickle it for tasks, which asks no broker.
        if self._opened is None:
            self._opened = Planner(self.options, self._clock)
        return self._opened

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's
        """The kind of limit for Spark; its size is read from the options alone."""
        if self.options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self.options.max_offsets_per_trigger)
        if self.options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self.options.max_bytes_per_trigger)
        if self.options.min_offsets_per_trigger is not None:
            return ReadMinRows(self.options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's
        """A constant: a start resolved here would be resolved again at a restart and skip rows."""
        return dict(positions.INITIAL)

    @without_traceback()
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's
        """Fix the end offsets of this run of Trigger.AvailableNow."""
        self._target = self._planner.newest()

    @without_traceback()
    def latestOffset(  # noqa: N802 - Spark's
        self, start: dict[str, Any], limit: ReadLimit
    ) -> dict[str, Any]:
        """The end of the batch after `start`; `start` itself when there is nothing new."""
        now = self._clock.monotonic()
        lifts_limits = isinstance(limit, ReadAllAvailable)
        if self._held_from == start and now - self._held_at < HELD_S and not lifts_limits:
            return start
        position = self._next(start)
        if position is None:
            return start
        self._newest = position.to_json()
        if not lifts_limits:
            if self._waits(position, start):
                self._held_from, self._held_at = start, now
                return start
            position = self._planner.limited(position)
        if _is_empty(position, start):
            return start
        self._triggered_at = now
        return position.to_json()

    def _waits(self, position: Position, start: dict[str, Any]) -> bool:
        """True while `minOffsetsPerTrigger` and `maxTriggerDelay` hold the batch back.

        As in Spark's Kafka source, the first batch of a run is not held back. Nor is any batch of
        Trigger.AvailableNow: what is held back would never be read in that run.
        """
        least = self.options.min_offsets_per_trigger
        if least is None or self._target is not None or positions.is_initial(start):
            return False
        if self._clock.monotonic() - self._triggered_at >= self.options.max_trigger_delay_s:
            return False
        return is_too_small(position, positions.from_json(start), least)

    def _next(self, start: dict[str, Any]) -> Position | None:
        if positions.is_initial(start):
            position: Position | None = self._planner.first()
        else:
            previous = positions.from_json(start)
            position = self._planner.next(previous, must_settle=self._target is not None)
        if position is not None and self._target is not None:
            position = limit_ends(position, self._target)
        return position

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's
        """The log ends that the last `latestOffset` saw; makes no request."""
        return self._newest

    @without_traceback()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[SplitPartition]:
        """The splits of the batch that `end` describes, which holds its own start."""
        position = positions.from_json(end)
        return self._partitions(self._planner.splits(position))

    def commit(self, end: dict[str, Any]) -> None:
        """Does nothing: the checkpoint has the offsets; a listener commits to groups."""

    def stop(self) -> None:
        """Close the planner's connections."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None


_OPERATORS: dict[type[Filter], str] = {
    EqualTo: "=",
    EqualNullSafe: "=",
    In: "in",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
}


def _comparison(of: Any) -> Comparison | None:
    """A filter of Spark's as a comparison; None for other kinds and for nested columns."""
    name = _OPERATORS.get(type(of))
    if name is None or len(of.attribute) != 1:
        return None
    return Comparison(of.attribute[0], name, of.value)


def _is_empty(position: Position, start: dict[str, Any]) -> bool:
    """True when limits or the run's end offsets leave no offset after `start`."""
    if positions.is_initial(start):
        return False
    previous = positions.from_json(start)
    same_ids = dict(position.topic_ids) == dict(previous.topic_ids)
    return same_ids and dict(position.end) == dict(previous.end)


def _arrow(schema: StructType) -> pa.Schema:
    return checked_schema(to_arrow_schema(schema, timezone="UTC"))
