"""How a record gets into its partition's open batch: the same code for both producers.

`Producer.send` and `AsyncProducer.try_send` are `queue_record`. What differs is what happens where
a record cannot be queued at once: a thread waits, a task gets an error, waits and tries again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, TypeVar

from headwater.client.core.partition_queue import PartitionQueue, ProducerBatch
from headwater.client.errors import OptionError
from headwater.client.option_rules import as_integer
from headwater.client.producer_engine import ProducerEngine
from headwater.client.topic_routes import TopicRoute
from headwater.errors import UsageError
from headwater.records.builder import NO_TIMESTAMP, RECORD_OVERHEAD_MAX_BYTES
from headwater.records.record import NO_HEADERS

TIMESTAMP_MAX = 2**63 - 1
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Blob = bytes | bytearray | memoryview | str
HeaderList = Iterable[tuple[str, Blob | None]] | Mapping[str, Blob | None]
F = TypeVar("F")
"""The future of a record: SendFuture, or the awaitable Delivery."""


class RecordSending(Generic[F]):
    """Queues records in the batches of an engine."""

    def __init__(
        self, engine: ProducerEngine[Any], outcome: Callable[[ProducerBatch, int, int], F]
    ) -> None:
        """`outcome` makes the future of a record: of its batch, its index there, its timestamp."""
        self._engine = engine
        self._outcome = outcome
        self._partitioner = engine.options.partitioner
        self._now_ms = engine.clock.now_ms
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

    def queue_record(
        self,
        topic: str,
        value: Blob | None = None,
        key: Blob | None = None,
        headers: HeaderList | None = None,
        timestamp: int | datetime | None = None,
        partition: int | None = None,
    ) -> F:
        """Queue a record; a future of its RecordMetadata. Strings are sent as UTF-8.

        `timestamp`: milliseconds since 1970, a datetime with a time zone, or None for now.

        For the topic's metadata or for room in `buffer_memory`, a thread's `Producer.send` blocks
        for up to `max_block_ms`. `AsyncProducer.try_send` waits for neither: it raises
        BufferExhaustedError, or LeaderNotAvailableError for a topic that is not known yet. Both
        raise UnknownTopicOrPartitionError, MessageTooLargeError, ClosedError; OptionError and
        UsageError for arguments of a wrong type or value.
        """
        if value is not None and type(value) is not bytes:
            value = _to_bytes(value, "value")
        if key is not None and type(key) is not bytes:
            key = _to_bytes(key, "key")
        route = self._by_topic.get(topic) or self._find_route(topic)
        if timestamp is None:
            timestamp = self._now_ms()
        elif type(timestamp) is not int or not NO_TIMESTAMP <= timestamp <= TIMESTAMP_MAX:
            timestamp = _to_timestamp(timestamp)
        size = RECORD_OVERHEAD_MAX_BYTES
        if value is not None:
            size += len(value)
        if key is not None:
            size += len(key)
        rows = NO_HEADERS
        if headers:
            rows = _header_rows(headers)
            size += sum(len(k) * 4 + len(v or b"") + 10 for k, v in rows)
        if partition is None and key is None and self._partitioner is None:
            queue = route.sticky_queue
            is_sticky = True
        else:
            queue = self._queue_for(topic, route, key, partition)
            is_sticky = False
        with self._lock:
            batch = queue.open
            if batch is None or batch.bytes_held + size > batch.reserved_bytes:
                batch = self._accumulator.batch_for(queue, size)
            index = batch.builder.append(timestamp, key, value, rows)  # type: ignore[union-attr]
            batch.count = index + 1
            batch.bytes_held += size
        if is_sticky and route.sticky.add(size):
            self._routes.switch_sticky(topic, route)
        return self._outcome(batch, index, timestamp)


def _to_bytes(blob: Any, what: str) -> bytes:
    if isinstance(blob, str):
        return blob.encode()
    if isinstance(blob, bytes | bytearray | memoryview):
        return bytes(blob)
    kind = type(blob).__name__
    raise OptionError(f"{what} is of type {kind}: give bytes, a string or None")


def _to_timestamp(timestamp: Any) -> int:
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


def _header_rows(headers: HeaderList) -> tuple[tuple[str, bytes | None], ...]:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    rows = []
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2 or not isinstance(pair[0], str):
            raise OptionError(f"header {pair!r}: give (name, value), the name a string")
        name, blob = pair
        rows.append((name, None if blob is None else _to_bytes(blob, f"header {name}")))
    return tuple(rows)
