"""Writers of `format("headwater")` for Spark's Python Data Source API, batch and streaming.

Columns as in Spark's Kafka sink: `value` (binary or string), and optionally `key`, `headers`,
`topic`, `partition`. Exactly once unless `headwater.delivery` says otherwise: a micro-batch is an
epoch transaction of the query's sink, a batch write is a transaction of its own.

Spark makes a writer in the driver for each micro-batch and pickles it for the tasks, twice in one
shipment. A writer that is pickled asks the brokers for its ticket and the topic's partitions, once.
For `commit` and `abort` Spark makes another streaming writer, which is never pickled; those of a
batch write get the pickled one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from headwater.client.blocking.epoch_client import EpochWriter
from headwater.system import SystemClock, SystemEntropy
from headwater_spark.sink.columns import check_columns
from headwater_spark.sink.connections import ABORT_TIMEOUT_S, SinkConnections, sink_connections
from headwater_spark.sink.epoch_commit import abort_epoch, commit_epoch
from headwater_spark.sink.epoch_identity import (
    TaskIdentity,
    batch_epoch,
    query_epoch,
    single_epoch,
)
from headwater_spark.sink.epoch_task import EpochTask, EpochTaskResult, write_in_epoch
from headwater_spark.sink.shipment import Shipment, new_shipment
from headwater_spark.sink.sink_options import SinkOptions, sink_options
from headwater_spark.sink.task_context import current_task
from headwater_spark.sink.write_task import Written, write_at_least_once
from headwater_spark.task_tokens import TOKENS
from headwater_spark.worker_errors import while_pickled, without_traceback

logger = logging.getLogger(__name__)


@dataclass
class SinkMessage(WriterCommitMessage):
    """A task's commit message."""

    written: Written
    epoch: EpochTaskResult | None = None
    """None with at-least-once delivery."""


class _TaskWrites:
    """The part of both writers that is pickled and runs in tasks."""

    def __init__(self, options: SinkOptions) -> None:
        self.options = options
        self._shipment: Shipment | None = None
        self._task_security = options.security

    def __getstate__(self) -> dict[str, Any]:
        """Spark ships the writer to its tasks: what all of them must agree on is decided here."""
        if self._shipment is None:
            with while_pickled(), sink_connections(self.options) as connections:
                self._shipment = new_shipment(self.options, connections)
                self._task_security = TOKENS.of(
                    self.options.bootstrap_servers, self.options.security
                )
        options = replace(self.options, security=self._task_security)
        return {**self.__dict__, "options": options}

    @property
    def shipment(self) -> Shipment:
        """What the driver decided when it shipped the writer."""
        if self._shipment is None:
            raise RuntimeError("this writer was not shipped to a task")
        return self._shipment

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SinkMessage:
        """One task's rows; returns when they are acknowledged, raises otherwise."""
        with without_traceback(), sink_connections(self.options) as connections:
            return self._written(iterator, current_task(), connections)

    def _written(
        self, rows: Iterator[pa.RecordBatch], task: TaskIdentity, connections: SinkConnections
    ) -> SinkMessage:
        options, clock = self.options, SystemClock()
        counts, ticket = self.shipment.partition_counts, self.shipment.ticket
        if ticket is None:
            return SinkMessage(
                write_at_least_once(rows, options, clock, connections, counts, task.task)
            )
        epoch = EpochTask(self._epoch(task, ticket), task.task, task.attempt)
        result = write_in_epoch(rows, options, clock, epoch, connections, counts)
        return SinkMessage(result.written, result)

    def _epoch(self, task: TaskIdentity, ticket: int) -> EpochWriter:
        raise NotImplementedError

    def _commit(
        self, messages: list[WriterCommitMessage | None], batch_id: int | None = None
    ) -> None:
        if not self.options.is_exactly_once:
            return  # every row is acknowledged
        with without_traceback(), sink_connections(self.options) as connections:
            commit_epoch(connections.epochs, _results(messages), batch_id)

    def _abort(
        self, messages: list[WriterCommitMessage | None], known: EpochWriter | None = None
    ) -> None:
        if not self.options.is_exactly_once:
            _warn(messages)
            return
        with sink_connections(self.options) as connections:
            client = connections.new_epoch_client(ABORT_TIMEOUT_S)
            try:
                abort_epoch(client, _results(messages), known)
            finally:
                client.close()


class BatchSink(_TaskWrites, DataSourceArrowWriter):
    """A batch write: one transaction, or with `headwater.sink.id` in foreachBatch an epoch."""

    def __init__(self, options: SinkOptions) -> None:
        super().__init__(options)
        self.write_id = SystemEntropy().uuid()

    @classmethod
    def of(cls, given: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchSink:
        """A writer of checked options and schema."""
        return cls(_checked(given, schema, overwrite))

    def _epoch(self, task: TaskIdentity, ticket: int) -> EpochWriter:
        return batch_epoch(self.write_id, task, self.options.sink_id, ticket)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit the transaction; raises only when it is not committed."""
        self._commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Abort the transaction, best effort; at-least-once rows stay in their topics."""
        ticket = self.shipment.ticket
        is_own = self.options.sink_id is None and ticket is not None
        self._abort(messages, single_epoch(self.write_id, ticket or 0) if is_own else None)


class StreamSink(_TaskWrites, DataSourceStreamArrowWriter):
    """A streaming write: each micro-batch is an epoch."""

    @classmethod
    def of(cls, given: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamSink:
        """A writer of checked options and schema. Spark's `overwrite` only repeats the mode."""
        return cls(_checked(given, schema, False))

    def _epoch(self, task: TaskIdentity, ticket: int) -> EpochWriter:
        return query_epoch(task, self.options.sink_id, ticket)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Commit the epoch; raises only when it is not committed, which stops the query."""
        self._commit(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Abort the epoch, best effort; at-least-once rows stay in their topics."""
        self._abort(messages)


def _results(messages: list[WriterCommitMessage | None]) -> list[EpochTaskResult | None]:
    return [m.epoch if isinstance(m, SinkMessage) else None for m in messages]


def _checked(given: Mapping[str, str], schema: StructType, overwrite: bool) -> SinkOptions:
    options = sink_options(given)
    check_columns(to_arrow_schema(schema, timezone="UTC"), options, overwrite)
    return options


def _warn(messages: list[WriterCommitMessage | None]) -> None:
    rows = sum(m.written.rows for m in messages if isinstance(m, SinkMessage))
    if rows:
        logger.warning("%d rows of a failed write stay in their topics (at least once)", rows)
