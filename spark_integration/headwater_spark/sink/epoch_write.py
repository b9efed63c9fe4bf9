"""Writes a DataFrame as participants of a given epoch, and leaves its commit to the caller.

`exactly_once()` prepares and commits the epoch itself. Here one Spark job writes the rows and
collects each task's participant. A job's results hold one attempt of each task, so the attempts
that Spark dropped are not named in the commit and are aborted with it.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from headwater.client.blocking.epoch_client import EpochWriter, Participant
from headwater.system import SystemClock
from headwater_spark.sink.columns import check_columns
from headwater_spark.sink.connections import sink_connections
from headwater_spark.sink.epoch_commit import named_participants
from headwater_spark.sink.epoch_task import EpochTask, EpochTaskResult, write_in_epoch
from headwater_spark.sink.sink_options import SinkOptions, sink_options
from headwater_spark.sink.task_context import current_task
from headwater_spark.sink.topics import partition_count
from headwater_spark.task_tokens import TOKENS
from headwater_spark.worker_errors import without_traceback

_COLUMN = "result"


@dataclass(frozen=True, slots=True)
class EpochWrite:
    """The rows of one DataFrame in an epoch that is not committed yet."""

    participants: tuple[Participant, ...]
    """To be named in PrepareEpoch or CommitEpoch."""
    is_committed: bool
    """The epoch was committed before: the rows were drained and not written."""
    tasks: int
    """The next free task number of the epoch."""
    rows: int


def write_epoch(
    rows: DataFrame, writer: EpochWriter, options: Mapping[str, str], *, first_task: int = 0
) -> EpochWrite:
    """Write all rows of a DataFrame in the epoch of `writer`, in one Spark job.

    `options` are those of the sink. Task numbers are distinct in an epoch: the second DataFrame of
    one epoch starts at the `tasks` of the first one. Raises when a task failed for good; the caller
    then aborts the epoch.
    """
    checked = sink_options({**options, "headwater.delivery": "exactly-once"})
    check_columns(to_arrow_schema(rows.schema, timezone="UTC"), checked, overwrite=False)
    counts: dict[str, int] = {}
    if checked.topic is not None:
        with sink_connections(checked) as connections:
            counts[checked.topic] = partition_count(
                connections.meta, checked.topic, checked.bootstrap_servers
            )
    tasks = TOKENS.of(checked.bootstrap_servers, checked.security)
    work = _task_function(replace(checked, security=tasks), writer, first_task, counts)
    answers = rows.mapInArrow(work, f"{_COLUMN} binary").collect()
    results: list[EpochTaskResult | None] = [pickle.loads(a[_COLUMN]) for a in answers]
    found = [result for result in results if result is not None]
    return EpochWrite(
        participants=tuple(named_participants(results)),
        is_committed=any(result.is_committed for result in found),
        tasks=max((result.task + 1 for result in found), default=first_task),
        rows=sum(result.written.rows for result in found),
    )


def _task_function(
    options: SinkOptions, writer: EpochWriter, first_task: int, counts: Mapping[str, int]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with without_traceback():
            spark_task = current_task()
            task = EpochTask(writer, first_task + spark_task.task, spark_task.attempt)
            with sink_connections(options) as connections:
                result = write_in_epoch(batches, options, SystemClock(), task, connections, counts)
        yield pa.record_batch([pa.array([pickle.dumps(result)])], names=[_COLUMN])

    return write
