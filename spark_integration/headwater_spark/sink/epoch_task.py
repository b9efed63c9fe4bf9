"""Writes one task's rows as a participant of an epoch transaction. Imports no pyspark.

The task joins the epoch when its first rows are ready, with the partitions that they go to: one
durable record at the coordinator. A task without rows joins nothing. If the epoch is committed
already, the rows are drained and not written: Spark repeats a micro-batch when it could not log its
commit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from headwater.client.blocking.epoch_client import EpochWriter, Participant
from headwater.client.epoch_errors import EpochAbortedError
from headwater.clock import Clock
from headwater.errors import ErrorCode, KafkaError
from headwater_spark.sink.connections import SinkConnections
from headwater_spark.sink.heartbeats import Heartbeats
from headwater_spark.sink.repeated_batches import join_unless_repeated
from headwater_spark.sink.sink_options import SinkOptions
from headwater_spark.sink.write_task import ProducerState, TaskWriter, Written

_ABORTED_CODES = (
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.TRANSACTION_ABORTABLE,
)
"""What a leader answers to a participant whose transaction is over (KIP-890)."""


@dataclass(frozen=True, slots=True)
class EpochTaskResult:
    """What a task attempt has written in an epoch. Picklable; travels in the commit message."""

    writer: EpochWriter
    task: int
    written: Written
    participant: Participant | None = None
    """None: the task had no rows, or the epoch was committed before."""
    is_committed: bool = False
    """The epoch was committed before this attempt: its rows are in the topics."""


@dataclass(frozen=True, slots=True)
class EpochTask:
    """A task attempt of an epoch."""

    writer: EpochWriter
    task: int
    attempt: int

    @property
    def first_partition(self) -> int:
        """Rows without key start here, so that tasks and batches share the partitions out."""
        return self.task + self.writer.epoch


class _Joining:
    """Joins the epoch when the first rows are ready."""

    def __init__(self, task: EpochTask, connections: SinkConnections, beats: Heartbeats) -> None:
        self._task = task
        self._connections = connections
        self._beats = beats
        self.participant: Participant | None = None
        self.is_committed = False

    def open_producer(self, partitions: Mapping[str, Sequence[int]]) -> ProducerState | None:
        task = self._task
        participant = join_unless_repeated(
            self._connections.epochs,
            task.writer,
            task=task.task,
            attempt=task.attempt,
            topics=partitions,
        )
        if participant is None:
            self.is_committed = True
            return None
        self.participant = participant
        self._connections.heartbeat_interval_s = participant.heartbeat_interval_s
        self._beats.joined(participant.heartbeat_interval_s)
        return ProducerState(
            participant.producer_id, participant.producer_epoch, participant.transactional_id
        )


def write_in_epoch(
    batches: Iterator[pa.RecordBatch],
    options: SinkOptions,
    clock: Clock,
    task: EpochTask,
    connections: SinkConnections,
    partition_counts: Mapping[str, int] | None = None,
) -> EpochTaskResult:
    """Write one task's rows; return when every row is acknowledged."""
    with Heartbeats(
        task.writer,
        connections.new_epoch_client,
        first_interval_s=connections.heartbeat_interval_s,
    ) as beats:
        joining = _Joining(task, connections, beats)
        writer = TaskWriter(
            options,
            clock,
            connections,
            joining.open_producer,
            partition_counts=partition_counts,
            first_partition=task.first_partition,
            check=beats.check,
        )
        try:
            written = writer.write(batches)
        except KafkaError as error:
            if error.code not in _ABORTED_CODES:
                raise
            raise EpochAbortedError(
                task.writer.sink,
                task.writer.epoch,
                f"epoch {task.writer.epoch} of sink {task.writer.sink} was aborted while task"
                f" {task.task} wrote it: the batch must be written again",
            ) from error
    return EpochTaskResult(
        task.writer, task.task, written, joining.participant, joining.is_committed
    )
