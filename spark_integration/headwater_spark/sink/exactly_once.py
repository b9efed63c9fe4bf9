"""`exactly_once`: a Delta table and topics in one micro-batch of `foreachBatch`.

For `format("headwater")` alone: `epoch_task` and `epoch_commit`.

    def batch(df, epoch_id, tx):
        tx.delta(df)                        # or tx.merge(df, on="target.id = source.id")
        tx.topic(alerts(df), "alerts")

    query = (
        stream.writeStream
        .foreachBatch(headwater_spark.exactly_once(
            batch, bootstrap_servers="127.0.0.1:9092", table="/tables/silver"))
        .option("checkpointLocation", "/checkpoints/silver")
        .start()
    )

After any crash the table and the topics have the same micro-batches, each once.
`headwater_spark.sink.epoch_decided_by_table` says how.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from uuid import UUID

from pyspark.sql import DataFrame, SparkSession

from headwater.client.blocking.epoch_client import EpochClient, EpochWriter
from headwater.errors import UsageError
from headwater_spark.options import servers_of
from headwater_spark.sink.connections import ABORT_TIMEOUT_S, CLIENT_ID
from headwater_spark.sink.delta_decision import (
    Append,
    DeltaDecisionTable,
    Merge,
    MergeClauses,
    update_and_insert,
)
from headwater_spark.sink.epoch_decided_by_table import DecidedEpoch, TableCommit
from headwater_spark.sink.epoch_identity import (
    BATCH_ID,
    QUERY_ID,
    RUN_ID,
    TaskIdentity,
    query_epoch,
)
from headwater_spark.sink.repeated_batches import FinishedBatches
from headwater_spark.sink.sink_options import sink_options
from headwater_spark.sink.topic_writes import write_topics

RESERVED = ("txnappid", "txnversion", "usermetadata")
"""Options of Delta that carry the decision."""
FINISHED = FinishedBatches()
"""Of every function in this driver: Spark runs foreachBatch in its process."""


class EpochWrites:
    """The writes of one micro-batch: `tx`. They run, in the right order, when the function that
    names them has returned."""

    def __init__(self, epoch_id: int) -> None:
        self.epoch_id = epoch_id
        self.table_write: Append | Merge | None = None
        self.topic_writes: list[tuple[DataFrame, dict[str, str]]] = []

    def delta(self, rows: DataFrame, *, partition_by: Sequence[str] = (), **options: str) -> None:
        """Append rows to the table. `options` are Delta's, such as mergeSchema="true"."""
        reserved = [name for name in options if name.lower() in RESERVED]
        if reserved:
            raise UsageError(f"option {reserved[0]!r} is set by exactly_once: leave it out")
        self._set(Append(rows, tuple(partition_by), options))

    def merge(
        self,
        rows: DataFrame,
        on: str,
        *,
        clauses: MergeClauses = update_and_insert,
        target: str = "target",
        source: str = "source",
    ) -> None:
        """MERGE rows into the table. `on` and `clauses` name the table `target` and the rows
        `source`; `clauses` gets Delta's merge builder and returns it with its WHEN clauses."""
        self._set(Merge(rows, on, clauses, (target, source)))

    def topic(self, rows: DataFrame, topic: str | None = None, **options: str) -> None:
        """Write rows to a topic, or to those of their column `topic`. Columns and `options` are
        those of `format("headwater")`. May be called several times."""
        named = {} if topic is None else {"topic": topic}
        self.topic_writes.append((rows, {**options, **named}))

    def _set(self, write: Append | Merge) -> None:
        if self.table_write is not None:
            raise UsageError(
                "a micro-batch has one Delta write: two commits, to two tables or to one, are not"
                " one decision in Delta. Union the rows, or wrap a function of its own with"
                " exactly_once for the other table"
            )
        self.table_write = write


BatchFunction = Callable[[DataFrame, int, EpochWrites], None]


def exactly_once(
    batch: BatchFunction,
    *,
    bootstrap_servers: str | None = None,
    table: str,
    sink_id: str | None = None,
    options: Mapping[str, str] | None = None,
) -> ExactlyOnceBatch:
    """A function for `foreachBatch` whose Delta write and topic writes happen together or not.

    `batch(df, epoch_id, tx)` names the writes; see `EpochWrites`. `table`: a path (with a slash) or
    a name; its commits decide. `sink_id`: the sink's name at the brokers and in the table; default:
    the query's id. `options`: of every topic write, also of the connection (`kafka.*`,
    `cluster.spark_options()`). Raises UsageError for bad options at once.
    """
    servers = servers_of(bootstrap_servers, options or {})
    return ExactlyOnceBatch(batch, servers, table, sink_id, options or {})


class ExactlyOnceBatch:
    """The function that Spark calls for each micro-batch."""

    def __init__(
        self,
        batch: BatchFunction,
        bootstrap_servers: str,
        table: str,
        sink_id: str | None,
        options: Mapping[str, str],
        new_client: Callable[..., EpochClient] = EpochClient,
        finished: FinishedBatches = FINISHED,
        new_table: Callable[[SparkSession, str, str], DeltaDecisionTable] = DeltaDecisionTable,
    ) -> None:
        """`new_client`, `finished` and `new_table` are for tests."""
        self._batch = batch
        self._table = table
        self._common = {**options, "kafka.bootstrap.servers": bootstrap_servers}
        named = {} if sink_id is None else {"headwater.sink.id": sink_id}
        self._checked = sink_options({**self._common, **named})
        self._new_client = new_client
        self._new_table = new_table
        self._finished = finished
        self._written: dict[UUID, TableCommit | None] = {}
        """Runs of queries that have committed an epoch with this object, and the last one."""

    def __call__(self, df: DataFrame, epoch_id: int) -> None:
        """One micro-batch: returns when table and topics have it, or raises."""
        writer = self._identity(df, epoch_id)
        table = self._new_table(df.sparkSession, self._table, writer.sink)
        options = self._checked
        self._finished.check(options.bootstrap_servers, writer)
        with self._client() as client:
            known = self._written.get(writer.run)
            epoch = DecidedEpoch(client, table, writer, self._abort, known)
            if not epoch.settle_earlier():
                writes = EpochWrites(epoch_id)
                self._batch(df, epoch_id, writes)
                self._prepare_table(table, writes)
                topics = [(rows, {**self._common, **own}) for rows, own in writes.topic_writes]
                epoch.run(
                    lambda w: write_topics(w, topics, self._client),
                    lambda w: table.write(writes.table_write, w),
                )
        self._written[writer.run] = epoch.written
        self._finished.finished(options.bootstrap_servers, writer)

    def _client(self, limit_s: float = math.inf) -> EpochClient:
        """`limit_s`: of its calls, if that is less than the options say."""
        options = self._checked
        return self._new_client(
            options.bootstrap_servers,
            client_id=options.client_id or CLIENT_ID,
            request_timeout_s=min(options.timeouts.request_s, limit_s),
            retry_timeout_s=min(options.timeouts.retry_s, limit_s),
            credentials=options.security.credentials(),
        )

    def _abort(self, writer: EpochWriter) -> None:
        """Brokers that are gone have used up the time limit once already."""
        with self._client(ABORT_TIMEOUT_S) as client:
            client.abort(writer)

    def _identity(self, df: DataFrame, epoch_id: int) -> EpochWriter:
        context = df.sparkSession.sparkContext
        query, run, epoch = (context.getLocalProperty(n) for n in (QUERY_ID, RUN_ID, BATCH_ID))
        return query_epoch(
            TaskIdentity(0, 0, query, run, epoch or str(epoch_id)), self._checked.sink_id, 0
        )

    def _prepare_table(self, table: DeltaDecisionTable, writes: EpochWrites) -> None:
        """The table must exist before the epoch is prepared."""
        write = writes.table_write
        if write is not None:
            table.create(write.rows, write.partition_by if isinstance(write, Append) else ())
        elif not table.exists():
            raise UsageError(
                f"table {self._table} does not exist, and the first micro-batch has no tx.delta or"
                " tx.merge to create it: create the table first"
            )
