"""How a record gets into its partition's open batch: the same code for both producers.

`Producer.send` and `AsyncProducer.try_send` are `queue_record`. What differs is what happens where
a record cannot be queued at once: a thread waits, a task gets an error, waits and tries again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, Protocol, TypeVar, overload

from headwater.client.core.partition_queue import PartitionQueue
from headwater.client.errors import OptionError
from headwater.client.futures import RecordOutcome
from headwater.client.interceptors import SendRecord, chain_of
from headwater.client.option_rules import as_integer
from headwater.client.producer_engine import ProducerEngine
from headwater.client.serializers.values import Topic
from headwater.client.topic_routes import ROUND_ROBIN, STICKY, TopicRoute
from headwater.errors import UsageError
from headwater.records.builder import NO_TIMESTAMP, RECORD_OVERHEAD_MAX_BYTES
from headwater.records.record import NO_HEADERS

TIMESTAMP_MAX = 2**63 - 1
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class ArrowStream(Protocol):
    """A frame of polars or pandas, a relation of DuckDB: what Arrow can read."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Arrow's interface for streams of record batches."""
        ...


Blob = bytes | bytearray | memoryview | str
HeaderList = Iterable[tuple[str, Blob | None]] | Mapping[str, Blob | None]
K = TypeVar("K")
V = TypeVar("V")
F = TypeVar("F", bound=RecordOutcome)
"""The future of a record: SendFuture, or the awaitable Delivery."""


class RecordSending(Generic[F]):
    """Queues records in the batches of an engine."""

    def __init__(self, engine: ProducerEngine[Any], outcome: type[F]) -> None:
        """`outcome`: the class of a record's future."""
        self._engine = engine
        self._outcome = outcome
        chosen = engine.options.partitioner
        self._is_sticky = chosen == STICKY
        self._partitions_all = chosen == ROUND_ROBIN or callable(chosen)
        """True when keyless records are not sticky either."""
        self._chain = chain_of(engine.options.interceptors)
        self._is_plain = self._chain is None and not self._partitions_all
        """True when a keyless value can be queued as it is."""
        self._now_ms = engine.clock.now_ms
        self._now_s = engine.clock.now_s
        self._accumulator = engine.accumulator
        self._lock = engine.accumulator.lock
        self._routes = engine.routes
        self._by_topic = engine.routes.by_topic

    def _find_route(self, topic: str) -> TopicRoute:
        """The route of a topic that was not loaded."""
        raise NotImplementedError

    def _queue_for(
        self, topic: str, route: TopicRoute, key: bytes | None, partition: int | None
    ) -> PartitionQueue:
        """The queue of a record with a key or a partition."""
        return self._routes.queue_for(topic, route, key, partition)

    @overload
    def queue_record(
        self,
        topic: str,
        value: Blob | None = None,
        key: Blob | None = None,
        headers: HeaderList | None = None,
        timestamp: int | datetime | None = None,
        partition: int | None = None,
    ) -> F: ...

    @overload
    def queue_record(
        self,
        topic: Topic[K, V],
        value: V,
        key: K | None = None,
        headers: HeaderList | None = None,
        timestamp: int | datetime | None = None,
        partition: int | None = None,
    ) -> F: ...

    def queue_record(
        self,
        topic: str | Topic[Any, Any],
        value: Any = None,
        key: Any = None,
        headers: HeaderList | None = None,
        timestamp: int | datetime | None = None,
        partition: int | None = None,
    ) -> F:
        """Queue a record; a future of its RecordMetadata. Strings are sent as UTF-8; a `Topic`
        serializes key and value.

        `timestamp`: milliseconds since 1970, a datetime with a time zone, or None for now.

        For the topic's metadata or for room in `buffer_memory`, a thread's `Producer.send` blocks
        for up to `max_block_ms`. `AsyncProducer.try_send` waits for neither: it raises
        BufferExhaustedError, or LeaderNotAvailableError for a topic that is not known yet. Both
        raise UnknownTopicOrPartitionError, MessageTooLargeError, ClosedError, SerializationError;
        OptionError and UsageError for arguments of a wrong type or value.
        """
        # The most frequent record by itself: what `_append` does, without a call and its questions.
        if (
            type(value) is bytes
            and type(topic) is str
            and key is None
            and not headers
            and timestamp is None
            and partition is None
            and self._is_plain
        ):
            route = self._by_topic.get(topic) or self._find_route(topic)
            queue = route.sticky_queue
            size = RECORD_OVERHEAD_MAX_BYTES + len(value)
            with self._lock:
                batch = queue.open
                if batch is None or batch.bytes_held + size > batch.reserved_bytes:
                    batch = self._accumulator.batch_for(queue, size)
                columns = batch.columns
                assert columns is not None
                index = batch.count
                now_s = self._now_s()
                if now_s >= columns.until_s:
                    columns.tick(index, now_s)
                columns.values.append(value)
                batch.count = index + 1
                batch.bytes_held += size
                written_at = columns.timestamp
            sticky = route.sticky
            sticky.left -= size
            if sticky.left <= 0:
                self._routes.switch_sticky(topic, route)
            made = self._outcome()
            made._batch = batch
            made._index = index
            made._timestamp = written_at
            return made
        if type(topic) is not str or self._chain is not None:
            row = self._prepared(topic, value, key, headers, timestamp, partition)
            try:
                return self._queue_row(row)
            except Exception as error:
                self._refused(row, error)
                raise
        return self._append(topic, value, key, headers, timestamp, partition)

    def _prepared(
        self,
        topic: str | Topic[Any, Any],
        value: Any,
        key: Any,
        headers: HeaderList | None,
        timestamp: int | datetime | None,
        partition: int | None,
    ) -> SendRecord:
        """The record as bytes, as the interceptors want it."""
        rows = header_rows(headers) if headers else NO_HEADERS
        if isinstance(topic, Topic):
            name = topic.name
            key, value = topic.dumps(key, value, rows)
        else:
            name = topic
            key = None if key is None else to_bytes(key, "key")
            value = None if value is None else to_bytes(value, "value")
        at = None if timestamp is None else to_timestamp(timestamp)
        row = SendRecord(name, value, key, rows, at, partition)
        return row if self._chain is None else self._chain.on_send(row)

    def _queue_row(self, row: SendRecord) -> F:
        """Queue a prepared record; the interceptors hear of its outcome."""
        sent = self._append(*row)
        chain = self._chain
        if chain is not None:
            sent.add_done_callback(lambda done: chain.on_delivery(row, *done.outcome()))
        return sent

    def _refused(self, row: SendRecord, error: Exception) -> None:
        """A prepared record was not queued."""
        if self._chain is not None:
            self._chain.on_delivery(row, None, error)

    def _append(  # noqa: C901 - what each record costs: a call per step would add a tenth
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: HeaderList | None = None,
        timestamp: int | datetime | None = None,
        partition: int | None = None,
    ) -> F:
        """Queue a record of bytes and text."""
        if value is not None and type(value) is not bytes:
            value = to_bytes(value, "value")
        if key is not None and type(key) is not bytes:
            key = to_bytes(key, "key")
        route = self._by_topic.get(topic) or self._find_route(topic)
        if timestamp is not None and (
            type(timestamp) is not int or not NO_TIMESTAMP <= timestamp <= TIMESTAMP_MAX
        ):
            timestamp = to_timestamp(timestamp)
        size = RECORD_OVERHEAD_MAX_BYTES + len(value or b"") + len(key or b"")
        rows = NO_HEADERS
        if headers:
            rows = header_rows(headers)
            size += sum(len(k) * 4 + len(v or b"") + 10 for k, v in rows)
        if partition is None and (key is None or self._is_sticky) and not self._partitions_all:
            queue = route.sticky_queue
            is_sticky = True
        else:
            queue = self._queue_for(topic, route, key, partition)
            is_sticky = False
        with self._lock:
            batch = queue.open
            if batch is None or batch.bytes_held + size > batch.reserved_bytes:
                batch = self._accumulator.batch_for(queue, size)
            columns = batch.columns
            assert columns is not None
            index = batch.count
            if timestamp is not None:
                columns.stamp(index, timestamp)
            elif (now_s := self._now_s()) >= columns.until_s:
                columns.tick(index, now_s)
            columns.values.append(value)
            if key is not None:
                columns.keys[index] = key
            if rows:
                columns.headers[index] = rows
            batch.count = index + 1
            batch.bytes_held += size
            written_at = columns.timestamp
        if is_sticky:
            route.sticky.left -= size
            if route.sticky.left <= 0:
                self._routes.switch_sticky(topic, route)
        made = self._outcome()
        made._batch = batch
        made._index = index
        made._timestamp = written_at
        return made


def to_bytes(blob: Any, what: str) -> bytes:
    """Bytes, or text as UTF-8. Raises OptionError."""
    if isinstance(blob, str):
        return blob.encode()
    if isinstance(blob, bytes | bytearray | memoryview):
        return bytes(blob)
    kind = type(blob).__name__
    raise OptionError(f"{what} is of type {kind}: give bytes, a string or None")


def to_timestamp(timestamp: Any) -> int:
    """Milliseconds since 1970. Raises OptionError, UsageError."""
    if isinstance(timestamp, datetime):
        if timestamp.utcoffset() is None:
            raise UsageError(
                f"timestamp {timestamp} has no time zone: give one, as in "
                "datetime(2026, 1, 2, tzinfo=timezone.utc), or milliseconds since 1970"
            )
        milliseconds = (timestamp - EPOCH) // timedelta(milliseconds=1)
    else:
        milliseconds = as_integer("timestamp", timestamp)
    if not NO_TIMESTAMP <= milliseconds <= TIMESTAMP_MAX:
        raise UsageError(f"timestamp {timestamp}: give milliseconds since 1970, or -1 for none")
    return milliseconds


def header_rows(headers: HeaderList) -> tuple[tuple[str, bytes | None], ...]:
    """Headers as rows of name and bytes. Raises OptionError."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    rows = []
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2 or not isinstance(pair[0], str):
            raise OptionError(f"header {pair!r}: give (name, value), the name a string")
        name, blob = pair
        rows.append((name, None if blob is None else to_bytes(blob, f"header {name}")))
    return tuple(rows)
