"""`Producer`: records to topics, batched, compressed, retried, exactly once per partition.

    with Producer("127.0.0.1:9092") as producer:
        future = producer.send("flights", b"value", key=b"N14228")
        print(future.result().offset)

`send` encodes the record at once into its partition's open batch on the caller's thread; a
background thread runs the loop that sends batches. `send` may be called from several threads.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Sequence
from time import sleep
from types import TracebackType
from typing import Any

from headwater.client.addresses import parse_bootstrap
from headwater.client.cluster import Cluster, ClusterOptions
from headwater.client.core.partitioning import StickyChoice, murmur2
from headwater.client.core.producing import IN_FLIGHT_MAX, Batch, PartitionQueue
from headwater.client.errors import (
    BufferExhaustedError,
    ClosedError,
    KafkaTimeoutError,
    MessageTooLargeError,
    UnknownTopicOrPartitionError,
    kafka_error,
)
from headwater.client.futures import Completion, SendFuture, TableFuture
from headwater.client.loop_thread import LoopThread
from headwater.client.sender import Sender, SenderOptions
from headwater.errors import ErrorCode, KafkaError, UsageError
from headwater.records.builder import NO_TIMESTAMP, RECORD_OVERHEAD_MAX_BYTES, BatchBuilder
from headwater.records.compression import Compression
from headwater.records.record import NO_HEADERS

BATCH_BYTES_DEFAULT = 128 * 1024
BUFFER_BYTES_DEFAULT = 64 * 1024 * 1024
REQUEST_BYTES_DEFAULT = 1024 * 1024
BOOTSTRAP_TIMEOUT_MS = 10_000
UNKNOWN_TOPIC_TIMEOUT_S = 5.0
"""How long `send` waits for a topic that metadata does not show, before it says so."""
CLOSE_TIMEOUT_S = 30.0
TIMESTAMP_MAX = 2**63 - 1
KEY_CACHE_MAX = 65_536
YIELD_S = 0.00005
"""After sealing a batch the sending thread steps aside, so that the loop gets the interpreter
without waiting out a switch interval."""

Blob = bytes | bytearray | memoryview | str
HeaderList = Iterable[tuple[str, Blob | None]] | dict[str, Blob | None]
Partitioner = Callable[[bytes | None, int], int]


class _Route:
    """What `send` needs of one topic."""

    __slots__ = ("count", "queues", "sticky", "sticky_queue")

    def __init__(self, queues: list[PartitionQueue], sticky: StickyChoice) -> None:
        self.queues = queues
        self.count = len(queues)
        self.sticky = sticky
        self.sticky_queue = queues[0]


class Producer:
    """Sends records. Raises NoBrokersAvailableError when the cluster cannot be reached.

    `acks`: "all" (or -1), 1 or 0. `enable_idempotence`: None means with acks="all".
    `partitioner(key, partition_count)` replaces the default for keyed and keyless records alike.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] = "127.0.0.1:9092",
        *,
        client_id: str = "headwater-producer",
        acks: str | int = "all",
        linger_ms: float = 5,
        batch_size: int = BATCH_BYTES_DEFAULT,
        buffer_memory: int = BUFFER_BYTES_DEFAULT,
        max_request_size: int = REQUEST_BYTES_DEFAULT,
        compression_type: str | None = None,
        compression_level: int | None = None,
        enable_idempotence: bool | None = None,
        max_in_flight_requests_per_connection: int = IN_FLIGHT_MAX,
        partitioner: Partitioner | None = None,
        max_block_ms: int = 60_000,
        delivery_timeout_ms: int = 120_000,
        request_timeout_ms: int = 30_000,
        retry_backoff_ms: int = 50,
        metadata_max_age_ms: int = 300_000,
        bootstrap_timeout_ms: int = BOOTSTRAP_TIMEOUT_MS,
    ) -> None:
        acks_code = _acks_code(acks)
        idempotent = acks_code == -1 if enable_idempotence is None else enable_idempotence
        in_flight_max = max_in_flight_requests_per_connection
        if idempotent and (acks_code != -1 or in_flight_max > IN_FLIGHT_MAX):
            raise UsageError(
                'enable_idempotence needs acks="all" and at most '
                f"{IN_FLIGHT_MAX} max_in_flight_requests_per_connection"
            )
        self._batch_size = batch_size
        self._buffer_memory = buffer_memory
        self._max_request_size = max_request_size
        self._max_block_s = max_block_ms / 1000
        self._partitioner = partitioner
        self._compression = compression_type
        options = SenderOptions(
            acks=acks_code,
            linger_s=linger_ms / 1000,
            delivery_timeout_s=delivery_timeout_ms / 1000,
            request_timeout_ms=request_timeout_ms,
            max_in_flight=in_flight_max,
            max_request_bytes=max_request_size,
            compression=Compression.parse(compression_type),
            compression_level=compression_level,
            is_idempotent=idempotent,
        )
        cluster = ClusterOptions(
            client_id=client_id,
            request_timeout_ms=request_timeout_ms,
            retry_backoff_ms=retry_backoff_ms,
            metadata_max_age_ms=metadata_max_age_ms,
        )
        self._begin(parse_bootstrap(bootstrap_servers), cluster, options, bootstrap_timeout_ms)

    def _begin(
        self,
        addresses: list[tuple[str, int]],
        cluster: ClusterOptions,
        options: SenderOptions,
        bootstrap_timeout_ms: int,
    ) -> None:
        """Set up what is shared with the loop, start it, make first contact."""
        self._thread = LoopThread(cluster.client_id)
        self._loop = self._thread.loop
        self._cluster = Cluster(addresses, cluster)
        self._clock = self._cluster.clock
        self._now_ms = self._clock.now_ms
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        self._buffered = 0
        self._unfinished: dict[int, Batch] = {}
        self._routes: dict[str, _Route] = {}
        self._key_hashes: dict[bytes, int] = {}
        self._is_closed = False
        self._completion = Completion(self._clock.monotonic)
        self._sender = Sender(
            self._cluster, options, self._lock, self._completion, self._on_finished
        )
        try:
            self._thread.call(self._start(bootstrap_timeout_ms))
        except BaseException:
            self._shut()
            raise

    async def _start(self, timeout_ms: int) -> None:
        await self._cluster.bootstrap(timeout_ms)
        self._sender.start()

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def send(
        self,
        topic: str,
        value: Blob | None = None,
        key: Blob | None = None,
        headers: HeaderList | None = None,
        timestamp: int | None = None,
        partition: int | None = None,
    ) -> SendFuture:
        """Queue a record; a future of its RecordMetadata. Strings are sent as UTF-8.

        Blocks up to `max_block_ms` for metadata or buffer space. Raises
        UnknownTopicOrPartitionError, MessageTooLargeError, BufferExhaustedError, ClosedError;
        UsageError for a timestamp that is none.
        """
        if value is not None and type(value) is not bytes:
            value = _to_bytes(value, "value")
        if key is not None and type(key) is not bytes:
            key = _to_bytes(key, "key")
        route = self._routes.get(topic) or self._find_route(topic)
        if timestamp is None:
            timestamp = self._now_ms()
        elif not NO_TIMESTAMP <= timestamp <= TIMESTAMP_MAX:
            raise UsageError(f"timestamp {timestamp}: give milliseconds since 1970, or -1 for none")
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
            if batch is None or batch.bytes_held + size > self._batch_size:
                batch = self._open_batch(queue, size)
            index = batch.builder.append(timestamp, key, value, rows)  # type: ignore[union-attr]
            batch.count = index + 1
            batch.bytes_held += size
            self._buffered += size
        if is_sticky and route.sticky.took(size):
            self._move_sticky(topic, route)
        return SendFuture(batch, index, timestamp)

    def _open_batch(self, queue: PartitionQueue, size: int) -> Batch:
        """A new open batch, the old one sealed; called and left with the lock held."""
        if size > self._max_request_size:
            raise MessageTooLargeError(
                f"a record of about {size} bytes, max_request_size is {self._max_request_size}"
            )
        if queue.open is not None:
            queue.seal()
            self._wake()
            self._lock.release()
            try:
                sleep(YIELD_S)
            finally:
                self._lock.acquire()
        if self._buffered + size > self._buffer_memory:
            self._wait_for_room(size)
        if self._is_closed:
            raise ClosedError("the producer is closed")
        batch = queue.open
        if batch is None or batch.bytes_held + size > self._batch_size:
            queue.seal()
            batch = Batch(queue, self._completion, self._clock.monotonic())
            batch.builder = BatchBuilder()
            queue.open = batch
            self._unfinished[id(batch)] = batch
            self._wake()
        return batch

    def _wait_for_room(self, size: int) -> None:
        deadline = self._clock.monotonic() + self._max_block_s
        while self._buffered + size > self._buffer_memory and not self._is_closed:
            self._wake()
            left = deadline - self._clock.monotonic()
            if left <= 0:
                raise BufferExhaustedError(
                    f"{self._buffered} of {self._buffer_memory} bytes are waiting to be sent "
                    f"for {self._max_block_s} s"
                )
            self._room.wait(left)

    def _wake(self) -> None:
        sender = self._sender
        if not sender.wake_is_pending:
            sender.wake_is_pending = True
            self._loop.call_soon_threadsafe(sender.drain)

    def _on_finished(self, batches: list[Batch]) -> None:
        with self._lock:
            for batch in batches:
                batch.builder = None
                batch.data = None
                self._buffered -= batch.bytes_held
                self._unfinished.pop(id(batch), None)
            self._room.notify_all()

    def _queue_for(
        self, topic: str, route: _Route, key: bytes | None, partition: int | None
    ) -> PartitionQueue:
        if partition is None and self._partitioner is not None:
            partition = self._partitioner(key, route.count)
        if partition is None:
            assert key is not None
            hashed = self._key_hashes.get(key)
            if hashed is None:
                if len(self._key_hashes) >= KEY_CACHE_MAX:
                    self._key_hashes.clear()
                hashed = self._key_hashes[key] = murmur2(key) & 0x7FFFFFFF
            return route.queues[hashed % route.count]
        if not 0 <= partition < route.count:
            route = self._grow_route(topic, partition)
        return route.queues[partition]

    def _grow_route(self, topic: str, partition: int) -> _Route:
        """A partition beyond what is known: the topic may have grown."""
        route = self._load_route(topic)
        if not 0 <= partition < route.count:
            raise UnknownTopicOrPartitionError(
                f"{topic}-{partition}: the topic has partitions 0 to {route.count - 1}"
            )
        return route

    def _find_route(self, topic: str) -> _Route:
        if self._is_closed:
            raise ClosedError("the producer is closed")
        if not topic:
            raise UsageError("send needs a topic")
        return self._load_route(topic)

    def _load_route(self, topic: str) -> _Route:
        limit = min(self._max_block_s, UNKNOWN_TOPIC_TIMEOUT_S)
        count = self._thread.call(self._partition_count(topic, limit), self._max_block_s + 5)
        return self._make_route(topic, count)

    async def _partition_count(self, topic: str, limit_s: float) -> int:
        """Ask until the topic shows up with partitions. Raises the cluster's own error."""
        cluster = self._cluster
        deadline = self._clock.monotonic() + limit_s
        attempt = 0
        while True:
            await cluster.refresh((topic,), auto_create=True)
            known = cluster.cache.topics.get(topic)
            if known is not None and known.partitions:
                return len(known.partitions)
            code = cluster.cache.errors.get(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            if not code.retriable or self._clock.monotonic() > deadline:
                raise kafka_error(code, f"topic {topic}")
            await asyncio.sleep(cluster.backoff_s(attempt))
            attempt += 1

    def _make_route(self, topic: str, count: int) -> _Route:
        with self._lock:
            queues = []
            for partition in range(count):
                queue = self._sender.queues.get((topic, partition))
                if queue is None:
                    idempotent = self._sender.is_idempotent
                    queue = PartitionQueue(topic, partition, is_idempotent=idempotent)
                    self._sender.add_queue(queue)
                queues.append(queue)
        route = _Route(queues, StickyChoice(self._batch_size, self._pick))
        self._move_sticky(topic, route)
        self._routes[topic] = route
        return route

    def _pick(self, count: int) -> int:
        return min(count - 1, int(self._cluster.entropy.uniform(0, count)))

    def _move_sticky(self, topic: str, route: _Route) -> None:
        known = self._cluster.cache.topics.get(topic)
        if known is not None and len(known.partitions) > route.count:
            self._make_route(topic, len(known.partitions))
            return
        rows = () if known is None else known.partitions[: route.count]
        with_leader = [p.partition for p in rows if p.leader >= 0]
        route.sticky_queue = route.queues[route.sticky.choose(with_leader, route.count)]

    def partitions_for(self, topic: str) -> int:
        """How many partitions the topic has. Raises UnknownTopicOrPartitionError."""
        return (self._routes.get(topic) or self._find_route(topic)).count

    def send_table(
        self,
        topic: str,
        table: Any,
        key: str | None = None,
        value: str | Sequence[str] | None = None,
        headers: str | None = None,
        timestamp: str | int | None = None,
        partition: int | str | None = None,
    ) -> TableFuture:
        """Send every row of a pyarrow Table or RecordBatch, or a pandas DataFrame; a future.

        `value`: a column of bytes or text, or several columns (None: all others) sent as one JSON
        object per row. `key`, `headers` (list of key-value structs), `timestamp` (milliseconds or
        a timestamp type) name columns. `partition`: a number, or a column of numbers; otherwise
        by key as in `send`, or in large runs over all partitions. Needs the `arrow` extra.
        """
        from headwater.client import table as tables  # noqa: PLC0415 - optional extra

        route = self._routes.get(topic) or self._find_route(topic)
        plan = tables.TablePlan(
            key=key, value=value, headers=headers, timestamp=timestamp, partition=partition
        )
        built = tables.table_batches(
            table,
            plan,
            partitions=route.count,
            now_ms=self._now_ms(),
            compression=self._compression,
            batch_bytes_max=min(self._max_request_size, tables.TABLE_BATCH_BYTES),
        )
        sent, rows = [], 0
        for partition_index, data, count in built:
            sent.append(self._send_built(route.queues[partition_index], data, count))
            rows += count
        return TableFuture(sent, self._completion, rows)

    def _send_built(self, queue: PartitionQueue, data: bytearray, count: int) -> Batch:
        size = len(data)
        if size > self._max_request_size:
            raise MessageTooLargeError(
                f"a batch of {size} bytes, max_request_size is {self._max_request_size}"
            )
        with self._lock:
            if self._buffered + size > self._buffer_memory:
                self._wait_for_room(size)
            if self._is_closed:
                raise ClosedError("the producer is closed")
            batch = Batch(queue, self._completion, self._clock.monotonic())
            batch.data, batch.count, batch.bytes_held = data, count, size
            queue.seal()
            queue.sealed.append(batch)
            self._unfinished[id(batch)] = batch
            self._buffered += size
            self._wake()
        return batch

    def flush(self, timeout: float | None = None) -> None:
        """Wait until everything sent so far is acknowledged or has failed (KafkaTimeoutError)."""
        with self._lock:
            waiting = list(self._unfinished.values())
            self._sender.flushing += 1
        try:
            if waiting:
                self._loop.call_soon_threadsafe(self._sender.drain)
                if not self._completion.wait(waiting, timeout):
                    left = sum(b.count for b in waiting if not b.is_done)
                    raise KafkaTimeoutError(
                        f"{left} records are not acknowledged after {timeout} s"
                    )
        finally:
            with self._lock:
                self._sender.flushing -= 1

    def close(self, timeout: float | None = CLOSE_TIMEOUT_S) -> None:
        """Send what is queued, then end; what is left when time is up fails with ClosedError."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self.flush(timeout)
        except KafkaTimeoutError:
            self._loop.call_soon_threadsafe(
                self._sender.fail_everything, ClosedError("the producer was closed before delivery")
            )
        finally:
            self._shut()

    def _shut(self) -> None:
        self._is_closed = True
        try:
            self._thread.call(self._stop(), 5)
        except (KafkaError, ClosedError):
            pass  # the loop is gone or stuck: the daemon thread ends with the process
        self._thread.stop()

    async def _stop(self) -> None:
        self._sender.stop()
        await self._cluster.close()


def _acks_code(acks: str | int) -> int:
    codes = {"all": -1, -1: -1, 1: 1, 0: 0, "-1": -1, "1": 1, "0": 0}
    if acks not in codes:
        raise UsageError(f'acks {acks!r} is not one of "all", 1, 0')
    return codes[acks]


def _to_bytes(blob: Any, what: str) -> bytes:
    if isinstance(blob, str):
        return blob.encode()
    if isinstance(blob, bytes | bytearray | memoryview):
        return bytes(blob)
    raise UsageError(f"{what} is {type(blob).__name__}: give bytes, a string or None")


def _header_rows(headers: HeaderList) -> tuple[tuple[str, bytes | None], ...]:
    pairs = headers.items() if isinstance(headers, dict) else headers
    return tuple(
        (name, None if blob is None else _to_bytes(blob, f"header {name}")) for name, blob in pairs
    )
