"""Adapter of Spark's TaskContext: the only module of the sink that reads it."""

from __future__ import annotations

from pyspark import TaskContext

from headwater_spark.sink.epoch_identity import BATCH_ID, QUERY_ID, RUN_ID, TaskIdentity


def current_task() -> TaskIdentity:
    """The task that runs this Python worker."""
    context = TaskContext.get()
    if context is None:
        raise RuntimeError("no Spark task runs here")
    return TaskIdentity(
        task=context.partitionId(),
        attempt=context.taskAttemptId(),
        query_id=context.getLocalProperty(QUERY_ID),
        run_id=context.getLocalProperty(RUN_ID),
        batch_id=context.getLocalProperty(BATCH_ID),
    )
