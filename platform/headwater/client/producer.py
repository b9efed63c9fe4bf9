"""`Producer`: sends records to topics, in batches, compressed, with retries, idempotent.

    with Producer("127.0.0.1:9092") as producer:
        future = producer.send("flights", b"value", key=b"N14228")
        print(future.result().offset)

`send` encodes a record into its partition's open batch on the caller's thread; a background thread
sends the batches. Several threads may share a producer.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Unpack

from headwater.client.cluster import Cluster
from headwater.client.errors import ClosedError, IllegalStateError, KafkaTimeoutError, OptionError
from headwater.client.futures import BatchCompletion, SendFuture, TableFuture
from headwater.client.loop_thread import LoopThread
from headwater.client.option_rules import as_integer, checked
from headwater.client.outages import OutageLog, summary
from headwater.client.partition_names import Offsets
from headwater.client.prepared import PreparedTransaction
from headwater.client.producer_options import (
    Acks,
    CompressionType,
    OnError,
    Partitioner,
    ProducerOptions,
)
from headwater.client.record_accumulator import RecordAccumulator
from headwater.client.security_options import SecurityOptions
from headwater.client.sender import Sender
from headwater.client.topic_routes import TopicRoute, TopicRoutes
from headwater.client.transaction_manager import TransactionManager
from headwater.client.transactional import GroupMember, TransactionalCalls
from headwater.client.values import ConsumerGroupMetadata, ProducerStatistics
from headwater.errors import KafkaError, UsageError
from headwater.records.builder import NO_TIMESTAMP, RECORD_OVERHEAD_MAX_BYTES
from headwater.records.record import NO_HEADERS

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

CLOSE_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 5.0
TIMESTAMP_MAX = 2**63 - 1
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Blob = bytes | bytearray | memoryview | str
HeaderList = Iterable[tuple[str, Blob | None]] | dict[str, Blob | None]

log = logging.getLogger(__name__)


class Producer:
    """Sends records.

    Options have Kafka's names with underscores for dots; times are milliseconds, sizes bytes.

    Raises OptionError for an unknown option or a value of a wrong type, UsageError for other bad
    values, NoBrokersAvailableError when no broker answers within `bootstrap_timeout_ms`.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] = "127.0.0.1:9092",
        *,
        client_id: str = "headwater-producer",
        acks: Acks = "all",
        linger_ms: float = 5,
        batch_size: int = 131_072,
        buffer_memory: int = 67_108_864,
        max_request_size: int = 1_048_576,
        compression_type: CompressionType | None = None,
        compression_level: int | None = None,
        enable_idempotence: bool | None = None,
        transactional_id: str | None = None,
        transaction_timeout_ms: int = 60_000,
        transaction_two_phase_commit_enable: bool = False,
        max_in_flight_requests_per_connection: int = 5,
        partitioner: Partitioner | None = None,
        allow_auto_create_topics: bool = True,
        max_block_ms: float = 60_000,
        delivery_timeout_ms: float = 120_000,
        request_timeout_ms: int = 30_000,
        retry_backoff_ms: float = 50,
        retry_backoff_max_ms: float = 1_000,
        metadata_max_age_ms: float = 300_000,
        socket_connection_setup_timeout_ms: float = 10_000,
        bootstrap_timeout_ms: float = 10_000,
        outage_report_ms: float = 5_000,
        on_error: OnError | None = None,
        **security: Unpack[SecurityOptions],
    ) -> None:
        """`bootstrap_servers`: `"host:port,host:port"` or a list of such.

        `acks`: "all", 1 or 0. `enable_idempotence`: by default, with acks="all".
        With a `transactional_id` records are sent in transactions only (`begin_transaction`); the
        coordinator aborts one that is open for `transaction_timeout_ms`. The two-phase option lets
        it stay open without end (KIP-939; brokers have to allow it).
        `partitioner(key, number of partitions)` replaces the default one, for records with and
        without a key. `allow_auto_create_topics`: `send` and `send_table` create an absent topic if
        the broker's auto.create.topics.enable allows it; `partitions_for` never does. What cannot
        be reached for `outage_report_ms` is logged, and given to `on_error` as a KafkaError, on the
        producer's background thread. `security`: see SecurityOptions.
        """
        options = checked("Producer", ProducerOptions, locals(), security)
        self._options = options
        self._partitioner = options.partitioner
        self._thread = LoopThread(options.client_id or "headwater-producer")
        self._loop = self._thread.loop
        self._cluster = Cluster(
            options.bootstrap_servers, options.for_cluster(), on_update=self._on_metadata
        )
        self._clock = self._cluster.clock
        self._now_ms = self._clock.now_ms
        self._completion = BatchCompletion(self._clock.monotonic)
        self._outages = OutageLog(
            self._clock, log, options.on_error, report_after_s=options.outage_report_ms / 1000
        )
        self._accumulator = RecordAccumulator(
            options, self._clock, self._completion, self._thread, self._outages, self._wake_sender
        )
        self._lock = self._accumulator.lock
        self._transactions: TransactionalCalls | None = None
        manager = None
        if options.transactional_id is not None:
            manager = TransactionManager(self._cluster, options, self._accumulator)
            self._transactions = TransactionalCalls(
                manager, self._thread, self._accumulator, options
            )
        self._sender = Sender(
            self._cluster, options, self._accumulator, self._completion, self._outages, manager
        )
        self._routes = TopicRoutes(self._cluster, self._thread, options, self._accumulator)
        self._by_topic = self._routes.by_topic
        try:
            self._thread.call(self._start(options.bootstrap_timeout_ms))
        except BaseException:
            self._shut()
            raise

    async def _start(self, timeout_ms: float) -> None:
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

    def _on_metadata(self) -> None:
        self._routes.on_metadata()

    def send(
        self,
        topic: str,
        value: Blob | None = None,
        key: Blob | None = None,
        headers: HeaderList | None = None,
        timestamp: int | datetime | None = None,
        partition: int | None = None,
    ) -> SendFuture:
        """Queue a record; a future of its RecordMetadata. Strings are sent as UTF-8.

        `timestamp`: milliseconds since 1970, a datetime with a time zone, or None for now.

        Blocks for up to `max_block_ms` for the topic's metadata or for room in `buffer_memory`.
        Raises UnknownTopicOrPartitionError, MessageTooLargeError, BufferExhaustedError,
        ClosedError; OptionError and UsageError for arguments of a wrong type or value.
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
            queue = self._routes.queue_for(topic, route, key, partition)
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
        return SendFuture(batch, index, timestamp)

    def _wake_sender(self) -> None:
        sender = self._sender
        if not sender.wake_is_pending:
            sender.wake_is_pending = True
            self._loop.call_soon_threadsafe(sender.drain)

    def _find_route(self, topic: str) -> TopicRoute:
        if self._accumulator.check_send is not None:
            self._accumulator.check_send()  # before a topic is created
        return self._routes.load(topic, auto_create=self._options.allow_auto_create_topics)

    def partitions_for(self, topic: str) -> int:
        """The number of partitions of a topic, as `send` knows it. Never creates the topic.

        Raises UnknownTopicOrPartitionError.
        """
        return self._routes.load(topic, auto_create=False).count

    def send_table(
        self,
        topic: str,
        table: pa.Table | pa.RecordBatch | pd.DataFrame,
        key: str | None = None,
        value: str | Sequence[str] | None = None,
        headers: str | None = None,
        timestamp: str | int | None = None,
        partition: int | str | None = None,
    ) -> TableFuture:
        """Send each row of a pyarrow Table or RecordBatch, or a pandas DataFrame; a future of a
        SendSummary.

        `value`: a column of bytes or text, or several columns (None: all others), of which each row
        is sent as a JSON object. `key`, `headers` (a list of key-value structs) and `timestamp`
        (milliseconds or a timestamp type) name columns. `partition`: a number or a column of
        numbers; by default, rows go by key as in `send`, those without a key in large runs to all
        partitions. Needs the `arrow` extra. Blocks and raises as `send` does; UsageError for
        columns that do not exist or do not fit.
        """
        from headwater.client import table as tables  # noqa: PLC0415 - optional extra

        route = self._by_topic.get(topic) or self._find_route(topic)
        plan = tables.TablePlan(
            key=key, value=value, headers=headers, timestamp=timestamp, partition=partition
        )
        built = tables.table_batches(
            table,
            plan,
            partitions=route.count,
            now_ms=self._now_ms(),
            compression=self._options.compression_type,
            batch_bytes_max=min(self._options.max_request_size, tables.TABLE_BATCH_BYTES),
        )
        sent, rows = [], 0
        for index, data, count in built:
            sent.append(self._accumulator.add_built(route.queues[index], data, count))
            rows += count
        return TableFuture(sent, self._completion, rows)

    def flush(self, timeout: float | None = None) -> None:
        """Wait until each record sent so far is acknowledged or has failed.

        Raises KafkaTimeoutError after `timeout` seconds; its message names the partitions that wait
        and why. Raises IllegalStateError in a callback on the producer's own thread.
        """
        self._check_thread()
        waiting = self._accumulator.unfinished()
        with self._lock:
            self._accumulator.flushing_threads += 1
        try:
            if waiting:
                self._loop.call_soon_threadsafe(self._sender.drain)
                if not self._completion.wait(waiting, timeout):
                    left = sum(b.count for b in waiting if not b.is_done)
                    causes = summary(self._outages.outages())
                    raise KafkaTimeoutError(
                        f"{left} records are not acknowledged after {timeout} s"
                        + (f": {causes}" if causes else "")
                    )
        finally:
            with self._lock:
                self._accumulator.flushing_threads -= 1

    # --- transactions -------------------------------------------------------------------------

    def _transactional(self) -> TransactionalCalls:
        if self._transactions is None:
            raise IllegalStateError("this producer has no transactions: give it a transactional_id")
        self._check_thread()
        return self._transactions

    def init_transactions(
        self, timeout_ms: float | None = None, *, keep_prepared: bool = False
    ) -> PreparedTransaction | None:
        """Get the producer id: older producers of the transactional id are fenced, and what they
        left open is aborted. `begin_transaction` does it where it was not done.

        With `keep_prepared` a prepared transaction stays open and is returned: `commit_transaction`
        or `abort_transaction` ends it (KIP-939; brokers have to allow it).

        All transactional calls wait for up to `timeout_ms`, by default `max_block_ms`, and raise
        RetriableTransactionError (make the same call again), AbortableTransactionError (call
        `abort_transaction()`), FatalTransactionError, ProducerFencedError among them (close the
        producer), and IllegalStateError for a call that the state does not allow.
        """
        return self._transactional().init(timeout_ms, keep_prepared=keep_prepared)

    def begin_transaction(self) -> None:
        """Open a transaction: `send` and `send_offsets` are part of it."""
        self._transactional().begin()

    def commit_transaction(self, timeout_ms: float | None = None) -> None:
        """Send what is queued, then commit: all records become visible, or an error is raised."""
        self._transactional().commit(timeout_ms)

    def abort_transaction(self, timeout_ms: float | None = None) -> None:
        """Drop what is queued, then abort. Futures of records that were not sent raise
        TransactionAbortedError."""
        self._transactional().abort(timeout_ms)

    def transaction(self) -> AbstractContextManager[None]:
        """`with producer.transaction():` begins one, commits at the end, aborts at an exception.

        An AbortableTransactionError means that it was aborted: run the block again.
        """
        return self._transactional().transaction()

    def send_offsets(
        self,
        offsets: Offsets | None,
        group: ConsumerGroupMetadata | GroupMember,
        timeout_ms: float | None = None,
    ) -> None:
        """Commit a group's offsets with the transaction. `group`: the consumer, or its
        `group_metadata()`. Offsets None: the positions of the consumer.

        The consumer needs enable_auto_commit=False. Raises AbortableTransactionError when the group
        has assigned the partitions to another member.
        """
        self._transactional().send_offsets(offsets, group, timeout_ms)

    send_offsets_to_transaction = send_offsets

    def prepare(self, timeout_ms: float | None = None) -> PreparedTransaction:
        """Send what is queued and leave the transaction open; a handle with which any process
        commits or aborts it. Until then the producer only takes `commit_transaction`,
        `abort_transaction` and `close`, which leaves it open."""
        return self._transactional().prepare(timeout_ms)

    # --- observation and the end --------------------------------------------------------------

    def statistics(self) -> ProducerStatistics:
        """What the producer has done since it was created, and what it waits for now."""
        counters = self._sender.counters
        latency_s = counters.latency_sum_s / counters.responses if counters.responses else 0.0
        return ProducerStatistics(
            records_sent=counters.records_sent,
            bytes_sent=counters.bytes_sent,
            batches_sent=counters.batches_sent,
            records_failed=counters.records_failed,
            batches_retried=counters.batches_retried,
            batches_split=counters.batches_split,
            requests_sent=counters.requests_sent,
            request_latency_ms_avg=latency_s * 1000,
            request_latency_ms_max=counters.latency_max_s * 1000,
            records_waiting=sum(b.count for b in self._accumulator.unfinished()),
            buffer_bytes=self._accumulator.reserved_bytes,
            buffer_bytes_max=self._options.buffer_memory,
            blocked_threads=self._accumulator.blocked_threads,
            requests_in_flight={n: c for n, c in self._sender.in_flight.items() if c},
            outages=self._outages.outages(),
        )

    def metrics(self) -> dict[str, float]:
        """The same as numbers, by the names of Kafka's producer metrics (producer-metrics)."""
        now = self.statistics()
        return {
            "record-send-total": now.records_sent,
            "record-error-total": now.records_failed,
            "record-retry-total": now.batches_retried,
            "batch-split-total": now.batches_split,
            "outgoing-byte-total": now.bytes_sent,
            "request-total": now.requests_sent,
            "request-latency-avg": now.request_latency_ms_avg,
            "request-latency-max": now.request_latency_ms_max,
            "requests-in-flight": sum(now.requests_in_flight.values()),
            "buffer-total-bytes": now.buffer_bytes_max,
            "buffer-available-bytes": now.buffer_bytes_max - now.buffer_bytes,
            "waiting-threads": now.blocked_threads,
        }

    def close(self, timeout: float | None = CLOSE_TIMEOUT_S) -> None:
        """Send what is queued, then stop; records that are left after `timeout` seconds fail with
        ClosedError. An open transaction is aborted, a prepared one is not. A second call does
        nothing."""
        if self._accumulator.is_closed:
            return
        self._check_thread()
        if self._transactions is not None:
            self._transactions.close(CLOSE_TIMEOUT_S if timeout is None else timeout)
        self._accumulator.close()
        try:
            self.flush(timeout)
        except KafkaTimeoutError as e:
            log.warning("closing the producer: %s", e.detail)
            text = "the producer was closed before the record was delivered"
            self._loop.call_soon_threadsafe(self._sender.fail_everything, ClosedError(text))
        finally:
            self._shut()

    def _check_thread(self) -> None:
        if self._thread.is_current:
            raise IllegalStateError("a callback on the producer's own thread cannot wait for it")

    def _shut(self) -> None:
        self._accumulator.close()
        try:
            self._thread.call(self._stop(), STOP_TIMEOUT_S)
        except (KafkaError, ClosedError):
            pass  # the loop has ended or hangs: its daemon thread ends with the process
        self._thread.stop()

    async def _stop(self) -> None:
        self._sender.stop()
        await self._cluster.close()


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
    pairs = headers.items() if isinstance(headers, dict) else headers
    rows = []
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2 or not isinstance(pair[0], str):
            raise OptionError(f"header {pair!r}: give (name, value), the name a string")
        name, blob = pair
        rows.append((name, None if blob is None else _to_bytes(blob, f"header {name}")))
    return tuple(rows)
