"""Writes one task's Arrow rows as record batches. Runs in executors' tasks; imports no pyspark.

`write` returns when all in-sync replicas have every row, and raises otherwise. A `ProducerState`
decides what that means: with an idempotent producer a retried request adds nothing twice, but a
task that Spark runs again writes its rows again; with a participant of an epoch transaction the
rows stay invisible until the epoch is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.client.blocking.record_client import NO_PRODUCER
from headwater.clock import Clock
from headwater.columnar.schema import HEADERS
from headwater.errors import UsageError
from headwater.records.batch import NO_SEQUENCE
from headwater_spark.sink.connections import Sender, SinkConnections
from headwater_spark.sink.sink_options import SinkOptions
from headwater_spark.sink.topics import partition_count

if TYPE_CHECKING:
    from headwater.columnar.encode import EncodedBatch

BUFFER_BYTES = 16 * 1024 * 1024
"""Rows are buffered up to about this size before they are split by partition."""
BUFFER_ROWS = 500_000
QUEUED_BATCHES_MAX = 64

PartitionId = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Written:
    """The rows that a task has written. Picklable."""

    rows: int
    partitions: tuple[tuple[str, int, int], ...]
    """(topic, partition, rows)."""


@dataclass(frozen=True, slots=True)
class ProducerState:
    """The producer that a task's batches name (KIP-98)."""

    producer_id: int
    producer_epoch: int
    transactional_id: str | None = None

    @property
    def is_idempotent(self) -> bool:
        """False when the brokers gave no producer id."""
        return (self.producer_id, self.producer_epoch) != NO_PRODUCER


OpenProducer = Callable[[Mapping[str, Sequence[int]]], ProducerState | None]
"""Called once, before a task's first batch, with the partitions of the first buffer of rows; None:
nothing is to be written, the rows are already in the topics."""


@dataclass(frozen=True, slots=True)
class _PartitionRows:
    """The rows of a buffer that go to one partition."""

    target: PartitionId
    key: pa.Array | None
    value: pa.Array
    headers: pa.Array | None


class TaskWriter:
    """Writes one task's rows. One thread at a time."""

    def __init__(
        self,
        options: SinkOptions,
        clock: Clock,
        connections: SinkConnections,
        open_producer: OpenProducer,
        *,
        partition_counts: Mapping[str, int] | None = None,
        first_partition: int = 0,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """Rows without key go to `first_partition`, then to the next ones. `check` is called for
        each buffer of rows and raises when the task's rows can no longer count.
        """
        self._options = options
        self._clock = clock
        self._connections = connections
        self._open_producer = open_producer
        self._partitions = dict(partition_counts or {})
        self._producer: ProducerState | None = None
        self._is_drained = False
        self._sequences: dict[PartitionId, int] = {}
        self._rows: dict[PartitionId, int] = {}
        self._turn = first_partition
        self._check = check

    def write(self, batches: Iterator[pa.RecordBatch]) -> Written:
        """Write all rows; return when every row is acknowledged."""
        held: list[pa.RecordBatch] = []
        held_rows = held_bytes = 0
        for batch in batches:
            if self._is_drained:
                continue
            held.append(batch)
            held_rows += batch.num_rows
            held_bytes += batch.nbytes
            if held_bytes >= BUFFER_BYTES or held_rows >= BUFFER_ROWS:
                self._send(held)
                held, held_rows, held_bytes = [], 0, 0
        self._send(held)
        self._connections.wait_until_sent()
        self._check()
        counts = tuple((t, p, n) for (t, p), n in sorted(self._rows.items()))
        return Written(sum(n for _, _, n in counts), counts)

    def _send(self, held: list[pa.RecordBatch]) -> None:
        if not sum(batch.num_rows for batch in held):
            return
        self._check()
        parts = list(self._split(pa.Table.from_batches(held)))
        if self._producer is None:
            self._producer = self._open_producer(_enlisted(parts))
            self._is_drained = self._producer is None
        if self._producer is not None:
            for part in parts:
                self._encode(part, self._producer)

    def _split(self, table: pa.Table) -> Iterator[_PartitionRows]:
        from headwater_spark.sink.partitioner import choose  # noqa: PLC0415 - numba: not for planners

        turn = self._turn
        self._turn += 1
        for topic, rows in self._by_topic(table):
            key = _binary(rows, "key")
            value = _binary(rows, "value")
            headers = _headers(rows)
            wanted = _one(rows, "partition") if "partition" in rows.column_names else None
            count = self._partition_count(topic)
            chosen = choose(key, wanted, rows.num_rows, count, turn)
            for partition, index in _grouped(chosen):
                yield _PartitionRows(
                    (topic, partition),
                    None if key is None else _taken(key, index),
                    _taken(value, index),
                    None if headers is None else _taken(headers, index),
                )

    def _by_topic(self, table: pa.Table) -> Iterator[tuple[str, pa.Table]]:
        """The rows of each topic, which the option or the column names."""
        if self._options.topic is not None:
            yield self._options.topic, table
            return
        topics = table.column("topic")
        if topics.null_count:
            raise UsageError("column 'topic' holds null: name a topic there or in option 'topic'")
        distinct = pc.unique(topics).to_pylist()
        if len(distinct) == 1:
            yield str(distinct[0]), table
            return
        for topic in distinct:
            yield str(topic), table.filter(pc.equal(topics, topic))

    def _partition_count(self, topic: str) -> int:
        if topic not in self._partitions:
            self._partitions[topic] = partition_count(
                self._connections.meta, topic, self._options.bootstrap_servers
            )
        return self._partitions[topic]

    def _encode(self, part: _PartitionRows, producer: ProducerState) -> None:
        from headwater.columnar.encode import encode_rows  # noqa: PLC0415 - numba: not for planners

        target, rows = part.target, len(part.value)
        sequence = self._sequences.get(target, 0)
        batches = encode_rows(
            key=part.key,
            value=part.value,
            timestamps_ms=self._clock.now_ms(),
            headers=part.headers,
            compression=self._options.compression_type,
            batch_bytes_max=self._options.batch_bytes,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=sequence if producer.is_idempotent else NO_SEQUENCE,
            transactional=producer.transactional_id is not None,
        )
        self._sequences[target] = (sequence + rows) & 0x7FFFFFFF
        self._rows[target] = self._rows.get(target, 0) + rows
        sender = self._connections.sender(target[1])
        for batch in batches:
            _hand_over(sender, target, batch, producer.transactional_id)


def write_at_least_once(
    batches: Iterator[pa.RecordBatch],
    options: SinkOptions,
    clock: Clock,
    connections: SinkConnections,
    partition_counts: Mapping[str, int] | None = None,
    first_partition: int = 0,
) -> Written:
    """Write one task's rows with an idempotent producer of their own."""

    def new_producer(_partitions: Mapping[str, Sequence[int]]) -> ProducerState:
        return ProducerState(*connections.meta.new_producer_id())

    writer = TaskWriter(
        options,
        clock,
        connections,
        new_producer,
        partition_counts=partition_counts,
        first_partition=first_partition,
    )
    return writer.write(batches)


def _hand_over(
    sender: Sender, target: PartitionId, batch: EncodedBatch, transactional_id: str | None
) -> None:
    """Queue a batch, or wait while the queue is full. A failed batch fails the task."""
    while len(sender.under_way) >= QUEUED_BATCHES_MAX:
        sender.under_way.pop(0).result()
    while sender.under_way and sender.under_way[0].done():
        sender.under_way.pop(0).result()
    future = sender.pool.submit(
        sender.client.produce_batch, *target, batch.data, transactional_id=transactional_id
    )
    sender.under_way.append(future)


def _enlisted(parts: Sequence[_PartitionRows]) -> dict[str, list[int]]:
    """The partitions of a buffer of rows, by topic."""
    found: dict[str, list[int]] = {}
    for part in parts:
        found.setdefault(part.target[0], []).append(part.target[1])
    return found


def _grouped(chosen: Any) -> Iterator[tuple[int, Any]]:
    """(partition, row numbers in order); row numbers are None for all rows."""
    if (chosen == chosen[0]).all():
        yield int(chosen[0]), None
        return
    order = np.argsort(chosen, kind="stable")
    found, starts = np.unique(chosen[order], return_index=True)
    edges = [*starts.tolist(), len(chosen)]
    for i, partition in enumerate(found.tolist()):
        yield partition, order[edges[i] : edges[i + 1]]


def _taken(array: pa.Array, index: Any) -> pa.Array:
    return array if index is None else array.take(pa.array(index))


def _one(rows: pa.Table, name: str) -> pa.Array:
    column = rows.column(name)
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _binary(rows: pa.Table, name: str) -> pa.Array | None:
    """A key or value column as binary; strings become UTF-8."""
    if name not in rows.column_names:
        return None
    array = _one(rows, name)
    if isinstance(array, pa.ChunkedArray):
        raise UsageError(f"column {name!r}: one buffer of rows is larger than 2 GiB")
    return array if pa.types.is_binary(array.type) else array.cast(pa.binary())


def _headers(rows: pa.Table) -> pa.Array | None:
    if "headers" not in rows.column_names:
        return None
    array = _one(rows, "headers")
    if array.null_count == len(array):
        return None
    return array if array.type.equals(HEADERS) else array.cast(HEADERS)
