"""Reads one split as Arrow record batches. Runs in executors' tasks; imports no pyspark.

Hot: raw batches from the partition's leader, one fetch ahead, decoded by numba into the requested
columns only. Cold: row groups of the log table's files. Rows are in offset order either way.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from headwater.client.blocking.cluster import MissingTopicError
from headwater.client.blocking.fetch import NO_TOPIC_ID
from headwater.client.blocking.record_client import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    RecordClient,
    ReplacedTopicError,
)
from headwater.errors import ErrorCode, HeadwaterError, KafkaError
from headwater.ids import id_from_text
from headwater_spark import options
from headwater_spark.blocking_clients import record_client
from headwater_spark.source.cold_files import ColdFiles
from headwater_spark.source.cold_read import cold_batches
from headwater_spark.source.input_partitions import Split
from headwater_spark.task_security import NO_SECURITY, TaskSecurity

logger = logging.getLogger(__name__)

FETCH_BYTES = 2 * 1024 * 1024
"""Of one fetch, and about of one Arrow batch: larger batches do not fit the CPU's caches."""
IDLE_CLIENTS_MAX = 4
CLIENT_ID = "headwater-spark-read"

# Clients outlive a task: a worker process runs many tasks, one after the other.
Connection = tuple[str, str, options.Timeouts, TaskSecurity]
_idle: dict[Connection, list[RecordClient]] = {}


class OffsetsLostError(HeadwaterError):
    """A planned range was deleted before it was read, and `failOnDataLoss` is true."""


@dataclass(frozen=True, slots=True)
class ReadTask:
    """What a task needs to read its split. Picklable."""

    split: Split
    bootstrap_servers: str
    isolation_level: str
    fail_on_data_loss: bool
    schema: pa.Schema
    """The schema that Spark expects; its names are the columns to read."""
    files: ColdFiles | None = None
    timeouts: options.Timeouts = options.Timeouts()
    client_id: str = CLIENT_ID
    security: TaskSecurity = NO_SECURITY

    @property
    def connection(self) -> Connection:
        """The key of the clients that serve this task."""
        return self.bootstrap_servers, self.client_id, self.timeouts, self.security


def read(task: ReadTask) -> Iterator[pa.RecordBatch]:
    """The split's rows, in the task's schema."""
    rows = _cold(task) if task.files is not None else _hot(task)
    for batch in rows:
        if batch.num_rows:
            yield in_schema(batch, task.schema)


def in_schema(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch under Spark's schema: types are equal, nullability may differ."""
    if batch.schema.equals(schema):
        return batch
    return pa.RecordBatch.from_arrays(batch.columns, schema=schema)


def _hot(task: ReadTask) -> Iterator[pa.RecordBatch]:
    from headwater.columnar.decode import decode_batches  # noqa: PLC0415 - numba: not for planners

    split = task.split
    committed = task.isolation_level == options.READ_COMMITTED
    isolation = READ_COMMITTED if committed else READ_UNCOMMITTED
    columns = tuple(task.schema.names)
    start = split.start_offset
    topic_id = id_from_text(split.topic_id) if split.topic_id else NO_TOPIC_ID
    client = _borrow_client(task)
    while start < split.end_offset:
        try:
            for chunk in client.stream_batches(
                split.topic,
                split.partition,
                start,
                split.end_offset,
                max_bytes=FETCH_BYTES,
                isolation=isolation,
                topic_id=topic_id,
            ):
                decoded = decode_batches(
                    chunk.records,
                    start_offset=start,
                    end_offset=split.end_offset,
                    topic=split.topic,
                    partition=split.partition,
                    columns=columns,
                    aborted=chunk.aborted,
                )
                start = chunk.next_offset
                yield from decoded.chunks
        except (ReplacedTopicError, MissingTopicError) as e:
            start = _after_removal(task, start, e)
        except KafkaError as e:
            start = _after_loss(task, client, start, e)
    _return_client(task, client)


def _after_loss(task: ReadTask, client: RecordClient, start: int, error: KafkaError) -> int:
    """The offset to continue at when the log start has passed `start`. Raises OffsetsLostError."""
    split = task.split
    if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
        raise error
    tp = (split.topic, split.partition)
    earliest = client.list_offsets({tp: options.EARLIEST})[tp].offset
    if task.fail_on_data_loss or earliest <= start:
        raise OffsetsLostError(
            f"offsets {start} to {split.end_offset - 1} of {tp[0]}-{tp[1]} were planned, but the"
            f" log now starts at {earliest}: {error}. Set failOnDataLoss=false to continue without"
            " them."
        ) from error
    return min(earliest, split.end_offset)


def _after_removal(task: ReadTask, start: int, error: HeadwaterError) -> int:
    """The split's end when its topic was deleted before it was read. Raises OffsetsLostError."""
    split = task.split
    text = (
        f"offsets {start} to {split.end_offset - 1} of {split.topic}-{split.partition} were"
        f" planned, but the topic is gone: {error}"
    )
    if task.fail_on_data_loss:
        raise OffsetsLostError(
            f"{text}. Set failOnDataLoss=false to continue without them."
        ) from error
    logger.warning("continuing, as failOnDataLoss is false: %s", text)
    return split.end_offset


def _cold(task: ReadTask) -> Iterator[pa.RecordBatch]:
    assert task.files is not None
    return cold_batches(task.split, task.files, tuple(task.schema.names))


def _borrow_client(task: ReadTask) -> RecordClient:
    idle = _idle.get(task.connection)
    return idle.pop() if idle else record_client(*task.connection)


def _return_client(task: ReadTask, client: RecordClient) -> None:
    """Keep the client of a task that succeeded; a failed task's client may have a reply pending."""
    idle = _idle.setdefault(task.connection, [])
    if len(idle) < IDLE_CLIENTS_MAX:
        idle.append(client)
    else:
        client.close()
