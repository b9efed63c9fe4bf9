"""The epoch and the sink that a task writes. Pure.

A micro-batch of a streaming query is one epoch: Spark's batch id. Its sink is named by the query's
id, which the checkpoint keeps, or by `headwater.sink.id`. A Python sink learns both only from the
local properties of the job, and only in its tasks. A batch write is the only epoch of a sink of its
own.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from headwater.client.blocking.epoch_client import EpochWriter
from headwater.errors import UsageError
from headwater.wire.epoch_values import SinkKind

QUERY_ID = "sql.streaming.queryId"
"""Local property: the id of the streaming query, which its checkpoint keeps."""
RUN_ID = "spark.jobGroup.id"
"""Local property: a streaming query's jobs are grouped by the query's run id."""
BATCH_ID = "streaming.sql.batchId"
"""Local property: the micro-batch."""


@dataclass(frozen=True, slots=True)
class TaskIdentity:
    """A task attempt, and the local properties of its job that name a streaming micro-batch."""

    task: int
    """Spark's partition id: the same in every attempt."""
    attempt: int
    """Unique in the Spark application; attempt numbers start again with each stage attempt."""
    query_id: str | None = None
    run_id: str | None = None
    batch_id: str | None = None

    @property
    def is_in_query(self) -> bool:
        """True in a job of a streaming query, also in its foreachBatch."""
        return self.query_id is not None and self.batch_id is not None


def query_epoch(task: TaskIdentity, sink_id: str | None, ticket: int) -> EpochWriter:
    """The epoch of a streaming query's micro-batch.

    Raises UsageError when the task does not know the query, its run and the batch: without them a
    repeated batch would look like a new one.
    """
    properties = ((QUERY_ID, task.query_id), (RUN_ID, task.run_id), (BATCH_ID, task.batch_id))
    missing = [name for name, value in properties if not value]
    if missing:
        raise UsageError(
            f"an exactly-once sink of a stream reads Spark's local property {missing[0]!r} in its"
            " tasks, and this session does not set it: set the option headwater.delivery to"
            " at-least-once"
        )
    return EpochWriter(
        sink=sink_id or str(task.query_id),
        owner=str(task.query_id),
        run=_run(str(task.run_id)),
        ticket=ticket,
        epoch=int(str(task.batch_id)),
        kind=SinkKind.QUERY,
    )


def batch_epoch(
    write_id: UUID, task: TaskIdentity, sink_id: str | None, ticket: int
) -> EpochWriter:
    """The epoch of a batch write: with `sink_id`, that of the micro-batch whose foreachBatch it is.

    Raises UsageError for a `sink_id` outside of a streaming query, where no batch id exists.
    """
    if sink_id is None:
        return single_epoch(write_id, ticket)
    if not task.is_in_query:
        raise UsageError(
            "the option headwater.sink.id names a sink of a streaming query, and this write runs"
            " outside of one: leave it out; the write is one transaction without it"
        )
    return query_epoch(task, sink_id, ticket)


def single_epoch(write_id: UUID, ticket: int) -> EpochWriter:
    """The only epoch of a sink that exists for one batch write."""
    name = f"batch-{write_id}"
    return EpochWriter(
        sink=name, owner=name, run=write_id, ticket=ticket, epoch=0, kind=SinkKind.BATCH
    )


def _run(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError as e:
        raise UsageError(
            "an exactly-once sink reads the streaming query's run id from the job group, which is"
            f" {text!r} here: set no job group inside foreachBatch"
        ) from e
