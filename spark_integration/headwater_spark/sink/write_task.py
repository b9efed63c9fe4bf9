"""Writes one task's Arrow rows as record batches. Runs in executors' tasks; imports no pyspark.

At least once: a task has an idempotent producer, so a retried request adds nothing twice, but a
task that Spark runs again writes its rows again. `write` returns when all in-sync replicas have
every row, and raises otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.client.blocking.record_client import NO_PRODUCER, RecordClient
from headwater.clock import Clock
from headwater.columnar.schema import HEADERS
from headwater.errors import ErrorCode, KafkaError, UsageError
from headwater.records.batch import NO_SEQUENCE
from headwater_spark.blocking_clients import record_client
from headwater_spark.sink.sink_options import SinkOptions

if TYPE_CHECKING:
    from headwater.columnar.encode import EncodedBatch

BUFFER_BYTES = 16 * 1024 * 1024
"""Rows are buffered up to about this size before they are split by partition."""
BUFFER_ROWS = 500_000
SENDERS = 3
"""Threads with connections of their own. A partition has one sender, which keeps its order."""
QUEUED_BATCHES_MAX = 64
CLIENT_ID = "headwater-spark-write"


@dataclass(frozen=True, slots=True)
class Written:
    """The rows that a task has written. Picklable."""

    rows: int
    partitions: tuple[tuple[str, int, int], ...]
    """(topic, partition, rows)."""


@dataclass(slots=True)
class _Sender:
    """A thread, its connections, and its unfinished requests."""

    pool: ThreadPoolExecutor
    client: RecordClient
    under_way: list[Future[int]] = field(default_factory=list)


class TaskWriter:
    """Writes one task's rows. One thread at a time; must be closed."""

    def __init__(self, options: SinkOptions, clock: Clock) -> None:
        self._options = options
        self._clock = clock
        self._client_id = options.client_id or CLIENT_ID
        self._meta = record_client(options.bootstrap_servers, self._client_id, options.timeouts)
        self._partitions: dict[str, int] = {}
        self._senders: list[_Sender] = []
        self._producer: tuple[int, int] | None = None
        self._sequences: dict[tuple[str, int], int] = {}
        self._rows: dict[tuple[str, int], int] = {}
        self._turn = 0

    def write(self, batches: Iterator[pa.RecordBatch]) -> Written:
        """Write all rows; return when every row is acknowledged."""
        held: list[pa.RecordBatch] = []
        held_rows = held_bytes = 0
        for batch in batches:
            held.append(batch)
            held_rows += batch.num_rows
            held_bytes += batch.nbytes
            if held_bytes >= BUFFER_BYTES or held_rows >= BUFFER_ROWS:
                self._send(held)
                held, held_rows, held_bytes = [], 0, 0
        self._send(held)
        for sender in self._senders:
            for future in sender.under_way:
                future.result()
        counts = tuple((t, p, n) for (t, p), n in sorted(self._rows.items()))
        return Written(sum(n for _, _, n in counts), counts)

    def close(self) -> None:
        """Cancel queued requests and close every connection."""
        for sender in self._senders:
            sender.pool.shutdown(wait=True, cancel_futures=True)
            sender.client.close()
        self._meta.close()

    def _send(self, held: list[pa.RecordBatch]) -> None:
        from headwater_spark.sink.partitioner import choose  # noqa: PLC0415 - numba: not for planners

        if not sum(batch.num_rows for batch in held):
            return
        table = pa.Table.from_batches(held)
        self._turn += 1
        for topic, rows in self._by_topic(table):
            key = _binary(rows, "key")
            value = _binary(rows, "value")
            headers = _headers(rows)
            wanted = _one(rows, "partition") if "partition" in rows.column_names else None
            count = self._partition_count(topic)
            chosen = choose(key, wanted, rows.num_rows, count, self._turn)
            for partition, index in _grouped(chosen):
                self._encode(
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
            try:
                found = self._meta.metadata([topic])[topic]
            except KafkaError as e:
                if e.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise UsageError(
                        f"topic {topic} does not exist at {self._options.bootstrap_servers}: create"
                        f" it with `headwater topics create {topic}`"
                    ) from e
                raise
            self._partitions[topic] = len(found.partitions)
        return self._partitions[topic]

    def _encode(
        self,
        target: tuple[str, int],
        key: pa.Array | None,
        value: pa.Array,
        headers: pa.Array | None,
    ) -> None:
        from headwater.columnar.encode import encode_rows  # noqa: PLC0415 - numba: not for planners

        if self._producer is None:
            self._producer = self._meta.new_producer_id()
        sequence = self._sequences.get(target, 0)
        batches = encode_rows(
            key=key,
            value=value,
            timestamps_ms=self._clock.now_ms(),
            headers=headers,
            compression=self._options.compression_type,
            batch_bytes_max=self._options.batch_bytes,
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            base_sequence=sequence if self._producer != NO_PRODUCER else NO_SEQUENCE,
        )
        self._sequences[target] = (sequence + len(value)) & 0x7FFFFFFF
        self._rows[target] = self._rows.get(target, 0) + len(value)
        sender = self._sender(target)
        for batch in batches:
            self._hand_over(sender, target, batch)

    def _hand_over(self, sender: _Sender, target: tuple[str, int], batch: EncodedBatch) -> None:
        """Queue a batch, or wait while the queue is full. A failed batch fails the task."""
        while len(sender.under_way) >= QUEUED_BATCHES_MAX:
            sender.under_way.pop(0).result()
        done = [future for future in sender.under_way if future.done()]
        for future in done:
            future.result()
            sender.under_way.remove(future)
        send = sender.client.produce_batch
        sender.under_way.append(sender.pool.submit(send, *target, batch.data))

    def _sender(self, target: tuple[str, int]) -> _Sender:
        number = target[1] % SENDERS
        while len(self._senders) <= number:
            client = RecordClient(
                self._options.bootstrap_servers,
                client_id=self._client_id,
                request_timeout_s=self._options.timeouts.request_s,
                retry_timeout_s=self._options.delivery_timeout_ms / 1000,
            )
            self._senders.append(_Sender(ThreadPoolExecutor(1, "headwater-send"), client))
        return self._senders[number]


def write(batches: Iterator[pa.RecordBatch], options: SinkOptions, clock: Clock) -> Written:
    """Write one task's rows."""
    writer = TaskWriter(options, clock)
    try:
        return writer.write(batches)
    finally:
        writer.close()


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
