"""`Producer`: sends records to topics, in batches, compressed, with retries, idempotent.

    with Producer("127.0.0.1:9092") as producer:
        future = producer.send("flights", b"value", key=b"N14228")
        print(future.result().offset)

`send` encodes a record into its partition's open batch on the caller's thread; a background thread
sends the batches. Several threads may share a producer.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Unpack

from headwater.client.config_names import keywords_of
from headwater.client.core.partition_queue import PartitionQueue
from headwater.client.errors import ClosedError, IllegalStateError, KafkaTimeoutError
from headwater.client.futures import BatchCompletion, SendFuture, TableFuture
from headwater.client.interceptors import Interceptor
from headwater.client.lone_sends import LoneSends
from headwater.client.loop_thread import LoopThread
from headwater.client.option_rules import checked
from headwater.client.partition_names import Offsets
from headwater.client.prepared_transaction import PreparedTransaction
from headwater.client.producer_engine import ProducerEngine
from headwater.client.producer_options import (
    Acks,
    CompressionType,
    OnError,
    Partitioner,
    PartitionerName,
    ProducerOptions,
)
from headwater.client.record_accumulator import ThreadAccumulator
from headwater.client.record_sending import ArrowStream, Blob, HeaderList, RecordSending
from headwater.client.security_options import SecurityOptions
from headwater.client.topic_routes import RouteNotLoadedError, TopicRoute, check_partition
from headwater.client.transactional import GroupMember, TransactionalCalls, TransactionVerbs
from headwater.client.values import ConsumerGroupMetadata, ProducerStatistics, Unacked
from headwater.errors import KafkaError
from headwater.system import SystemClock

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

__all__ = ["Blob", "HeaderList", "Producer"]
CLOSE_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 5.0
CALL_MARGIN_S = 5.0

log = logging.getLogger(__name__)


class Producer(RecordSending[SendFuture]):
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
        partitioner: Partitioner | PartitionerName | None = None,
        interceptors: Sequence[Interceptor] = (),
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
        without a key; "round_robin" and "sticky" are at hand. `interceptors`: see Interceptor.
        `allow_auto_create_topics`: `send` and `send_table` create an absent topic if the broker's
        auto.create.topics.enable allows it; `partitions_for` never does. What cannot be reached for
        `outage_report_ms` is logged, and given to `on_error` as a KafkaError, on the producer's
        background thread. `security`: see SecurityOptions.
        """
        options = checked("Producer", ProducerOptions, locals(), security)
        self._options = options
        self._thread = LoopThread(options.client_id or "headwater-producer")
        clock = SystemClock()
        self._completion = BatchCompletion(clock.monotonic)
        engine = ProducerEngine(options, self._thread, clock, self._completion, ThreadAccumulator)
        engine.lone = lone = LoneSends(engine, self._completion)
        self._completion.before_wait = lone.send
        super().__init__(engine, SendFuture)
        self._transactions: TransactionalCalls | None = None
        if engine.transactions is not None:
            verbs = TransactionVerbs(engine.transactions, engine.accumulator, options)
            self._transactions = TransactionalCalls(verbs, self._thread)
        try:
            self._thread.call(engine.start())
        except BaseException:
            self._shut()
            raise

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Producer:
        """A producer of a configuration with confluent-kafka's or Kafka's names, as
        {"bootstrap.servers": "host:9092", "linger.ms": 5}. Raises OptionError for a name that it
        does not have."""
        return cls(**keywords_of("Producer", ProducerOptions, config))

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    send = RecordSending.queue_record

    def _find_route(self, topic: str) -> TopicRoute:
        if self._accumulator.check_send is not None:
            self._accumulator.check_send()  # before a topic is created
        return self._load(topic, auto_create=self._options.allow_auto_create_topics)

    def _load(self, topic: str, *, auto_create: bool) -> TopicRoute:
        return self._routes.known(topic) or self._fetch(topic, auto_create=auto_create)

    def _fetch(self, topic: str, *, auto_create: bool) -> TopicRoute:
        limit_s = self._options.max_block_ms / 1000 + CALL_MARGIN_S
        return self._thread.call(self._routes.fetch(topic, auto_create=auto_create), limit_s)

    def _queue_for(
        self, topic: str, route: TopicRoute, key: bytes | None, partition: int | None
    ) -> PartitionQueue:
        try:
            return self._routes.queue_for(topic, route, key, partition)
        except RouteNotLoadedError as e:  # the topic may have grown
            assert e.partition is not None
            fresh = self._fetch(topic, auto_create=False)
            check_partition(topic, fresh, e.partition)
            return fresh.queues[e.partition]

    def partitions_for(self, topic: str) -> int:
        """The number of partitions of a topic, as `send` knows it. Never creates the topic.

        Raises UnknownTopicOrPartitionError.
        """
        return self._load(topic, auto_create=False).count

    def send_table(
        self,
        topic: str,
        table: pa.Table | pa.RecordBatch | pd.DataFrame | ArrowStream,
        key: str | None = None,
        value: str | Sequence[str] | None = None,
        headers: str | None = None,
        timestamp: str | int | None = None,
        partition: int | str | None = None,
    ) -> TableFuture:
        """Send each row of a pyarrow Table or RecordBatch, a frame of pandas or polars, or a
        relation of DuckDB; a future of a SendSummary.

        `value`: a column of bytes or text, or several columns (None: all others), of which each row
        is sent as a JSON object. `key`, `headers` (a list of key-value structs) and `timestamp`
        (milliseconds or a timestamp type) name columns. `partition`: a number or a column of
        numbers; where it is null, and by default, rows go by key, or by the producer's
        `partitioner`, as in `send`; those without a key in large runs to all partitions. Needs the
        `arrow` extra. Blocks and raises as `send` does; UsageError for columns that do not exist or
        do not fit.
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
            partitioner=self._options.partitioner,
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
            self._accumulator.flushing += 1
        try:
            if waiting:
                if len(waiting) > 1:  # a lone one is sent by this thread, or the sender is woken
                    self._thread.post(self._engine.sender.drain)
                if not self._completion.wait(waiting, timeout):
                    raise self._engine.late(waiting, timeout or 0.0)
        finally:
            with self._lock:
                self._accumulator.flushing -= 1

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

    def unacked(self) -> list[Unacked]:
        """What is neither acknowledged nor failed, by batch, oldest first: not sent yet, or in
        doubt, and why. Empty after a `flush` that returned."""
        return self._engine.unacked()

    def statistics(self) -> ProducerStatistics:
        """What the producer has done since it was created, and what it waits for now."""
        return self._engine.statistics()

    def metrics(self) -> dict[str, float]:
        """The same as numbers, by the names of Kafka's producer metrics (producer-metrics)."""
        return self._engine.metrics()

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
            self._thread.post(self._engine.fail_everything)
        finally:
            self._shut()

    def _check_thread(self) -> None:
        if self._thread.is_current:
            raise IllegalStateError("a callback on the producer's own thread cannot wait for it")

    def _shut(self) -> None:
        self._accumulator.close()
        try:
            self._thread.call(self._engine.stop(), STOP_TIMEOUT_S)
        except (KafkaError, ClosedError):
            pass  # the loop has ended or hangs: its daemon thread ends with the process
        self._thread.stop()
