"""`ShareConsumer`: takes records from topics as a member of a share group (KIP-932), from a queue.

    with ShareConsumer("orders", bootstrap_servers="127.0.0.1:9092", group_id="pack") as consumer:
        for record in consumer:
            print(record.offset, record.delivery_count, record.value)

The members of a share group share each partition: every record goes to one of them, and to another
one when it is not accepted in time.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar, Unpack

from headwater.client.config_names import keywords_of
from headwater.client.consumer_coordinator import CALL_TIMEOUT_S
from headwater.client.consumer_options import OnError
from headwater.client.errors import ClosedError
from headwater.client.interceptors import Interceptor
from headwater.client.loop_thread import LoopThread
from headwater.client.option_rules import checked
from headwater.client.partition_names import PartitionName
from headwater.client.producer import Producer
from headwater.client.security_options import SecurityOptions
from headwater.client.serializers.values import Topic
from headwater.client.share_engine import AcknowledgementCallback, ShareEngine
from headwater.client.share_options import (
    ELSEWHERE,
    AcknowledgementMode,
    AcquireMode,
    ShareConsumerOptions,
)
from headwater.client.share_typed_reader import ShareTypedReader, one_by_one
from headwater.client.share_values import AcknowledgeType, ShareConsumerStatistics, ShareRecord
from headwater.client.steps import ThreadSteps
from headwater.client.topic_watch import checked_topics
from headwater.client.typed_reader import DeadLetters
from headwater.client.typed_records import OnUndecodable, Raise, TypedDecoding, TypedRecord
from headwater.client.values import ConsumerRecord, TopicPartition
from headwater.errors import KafkaError

K = TypeVar("K")
V = TypeVar("V")
RAISE = Raise()

log = logging.getLogger(__name__)


class ShareConsumer:
    """Takes records from a share group.

    Options have Kafka's names with underscores for dots; times are milliseconds, sizes bytes. One
    thread at a time may use a share consumer; `wakeup` and `close` may be called from another one.

    Raises OptionError for an unknown option or a value of a wrong type, UsageError for other bad
    values, NoBrokersAvailableError when no broker answers within `bootstrap_timeout_ms`.
    """

    def __init__(
        self,
        *topics: str | Topic[Any, Any],
        bootstrap_servers: str | Sequence[str] = "127.0.0.1:9092",
        group_id: str,
        client_id: str = "headwater-share-consumer",
        client_rack: str = "",
        share_acknowledgement_mode: AcknowledgementMode = "implicit",
        share_acquire_mode: AcquireMode = "batch_optimized",
        interceptors: Sequence[Interceptor] = (),
        max_poll_interval_ms: int = 300_000,
        max_poll_records: int = 500,
        fetch_min_bytes: int = 1,
        fetch_max_bytes: int = 52_428_800,
        fetch_max_wait_ms: int = 500,
        check_crcs: bool = True,
        consumer_timeout_ms: float | None = None,
        request_timeout_ms: int = 30_000,
        retry_backoff_ms: float = 50,
        retry_backoff_max_ms: float = 1_000,
        metadata_max_age_ms: float = 300_000,
        default_api_timeout_ms: float = 60_000,
        socket_connection_setup_timeout_ms: float = 10_000,
        bootstrap_timeout_ms: float = 10_000,
        outage_report_ms: float = 5_000,
        on_error: OnError | None = None,
        **security: Unpack[SecurityOptions],
    ) -> None:
        """`topics` are subscribed to at once.

        `share_acknowledgement_mode`: with "implicit" the next poll, the iteration's next step and
        `commit` accept what was returned before; with "explicit" each record needs `acknowledge`.
        `share_acquire_mode`: "batch_optimized" acquires whole batches, which may be more records
        than a poll returns; "record_limit" acquires no more than `max_poll_records` (KIP-1206).
        Where a new group begins, its lock timeout and its limits are configs of the group. What
        cannot be reached for `outage_report_ms` is logged, and given to `on_error` as a KafkaError,
        on the consumer's background thread.
        """
        options = checked("ShareConsumer", ShareConsumerOptions, locals(), security, ELSEWHERE)
        self._login: dict[str, Any] = {"bootstrap_servers": bootstrap_servers, **security}
        self._letters: list[DeadLetters] = []
        names = checked_topics(topics)
        self._options = options
        self._thread = LoopThread(options.client_id or "headwater-share-consumer")
        self._engine = ShareEngine(options, self._thread)
        self._guard = self._engine.guard
        self._steps = ThreadSteps(self._thread, self._engine.changes)
        try:
            self._thread.call(self._engine.start())
            if names:
                self.subscribe(names)
        except BaseException:
            self._shut()
            raise

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], *topics: str | Topic[Any, Any]
    ) -> ShareConsumer:
        """A share consumer of a configuration with confluent-kafka's or Kafka's names. Raises
        OptionError for a name that it does not have."""
        return cls(*topics, **keywords_of("ShareConsumer", ShareConsumerOptions, config))

    def __enter__(self) -> ShareConsumer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # --- what to read -------------------------------------------------------------------------

    def subscribe(self, topics: str | Iterable[str | Topic[Any, Any]]) -> None:
        """Take records of these topics; replaces an earlier list. An empty one unsubscribes.

        Raises OptionError, UsageError.
        """
        with self._guard:
            self._steps.run(self._engine.subscribe(topics))

    def unsubscribe(self) -> None:
        """Send the acknowledgements that were made, release the other records, leave the group."""
        with self._guard:
            self._steps.run(self._engine.unsubscribe())

    def subscription(self) -> list[str]:
        """The topics that are subscribed to."""
        return list(self._engine.member.topics)

    # --- reading ------------------------------------------------------------------------------

    def poll(
        self, timeout_ms: float = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ShareRecord]]:
        """Up to `max_records` records (by default `max_poll_records`) by partition; empty when none
        came within `timeout_ms`. The records of the poll before are accepted, in implicit mode.

        Raises IllegalStateError without a subscription, and in explicit mode while a record of the
        polls before is not acknowledged; the group's errors, as KafkaError; CorruptRecordError, and
        the records of that batch are released.
        """
        with self._guard:
            limit = self._engine.limit(max_records)
            rows = self._steps.run(self._engine.take(timeout_ms, limit))
        polled: dict[TopicPartition, list[ShareRecord]] = {}
        for row in rows:
            polled.setdefault(TopicPartition(row.topic, row.partition), []).append(row)
        return polled

    def __iter__(self) -> Iterator[ShareRecord]:
        """Records without end, or until none came for `consumer_timeout_ms`, or until `close`.

        In implicit mode each step accepts the record before; a `break` leaves the last one, which
        `commit` or another step accepts, and `close` releases.
        """
        engine = self._engine
        return one_by_one(
            engine, lambda wait_ms: self._steps.run(engine.take(wait_ms, 1, flush=False))
        )

    def typed(
        self,
        *topics: Topic[K, V],
        on_undecodable: OnUndecodable = RAISE,
        producer: Producer | None = None,
    ) -> ShareTypedReader[K, V]:
        """A reader of these topics' records with decoded keys and values; it subscribes to the
        topics if nothing is subscribed to.

        `on_undecodable`: Raise(), which releases the record, so that the group's delivery count
        limits how often it comes; Skip() and DeadLetter(topic), which reject it, the latter once it
        is acknowledged there; or a function of record and error that returns one of them. Dead
        letters go through `producer`, or through one that the consumer makes and closes.
        """
        decoding = TypedDecoding(topics, on_undecodable)
        if not self._engine.member.topics:
            self.subscribe(decoding.topics)
        letters = DeadLetters(lambda: Producer(**self._login), producer)
        self._letters.append(letters)
        return ShareTypedReader(self._engine, self._steps, decoding, letters)

    def wakeup(self) -> None:
        """Make a `poll` that waits return. Any thread may call it."""
        self._engine.wakeup()

    # --- acknowledgements ---------------------------------------------------------------------

    def acknowledge(
        self,
        record: ConsumerRecord | TypedRecord[Any, Any],
        type: AcknowledgeType = AcknowledgeType.ACCEPT,
    ) -> None:
        """What becomes of a record that a poll returned; sent by the next poll or `commit`.

        After RENEW the record is held for another lock timeout, counted from `commit`, and is
        acknowledged again. Raises IllegalStateError in implicit mode and for a record that is not
        held, UsageError.
        """
        with self._guard:
            self._engine.acknowledge(record, type)

    def acknowledge_offset(
        self,
        partition: PartitionName,
        offset: int,
        type: AcknowledgeType = AcknowledgeType.ACCEPT,
    ) -> None:
        """The same, by partition and offset."""
        with self._guard:
            self._engine.acknowledge_offset(partition, offset, type)

    @property
    def member_id(self) -> str:
        """The id that this member has chosen for itself (KIP-932)."""
        return self._engine.member.member_id

    def hand_over(self, records: Iterable[ShareRecord]) -> None:
        """Another one holds these records from now on, by a request of its own (ShareHolds): they
        need no acknowledgement of this consumer."""
        with self._guard:
            self._engine.state.hand_over(
                (TopicPartition(row.topic, row.partition), row.offset) for row in records
            )

    def commit(self, timeout_ms: float | None = None) -> dict[TopicPartition, KafkaError | None]:
        """Send the acknowledgements and wait for their outcome by partition (Kafka's commitSync):
        None, or an error, after which the records may be delivered again. In implicit mode what was
        returned is accepted. The default of `timeout_ms` is `default_api_timeout_ms`; what has no
        answer by then has a KafkaTimeoutError, and may be taken still."""
        with self._guard:
            return self._steps.run(self._engine.commit(timeout_ms))

    def commit_async(self) -> None:
        """The same without waiting: the acknowledgement commit callback gets the outcome."""
        with self._guard:
            self._engine.commit_async()

    def set_acknowledgement_commit_callback(self, callback: AcknowledgementCallback | None) -> None:
        """Have `poll`, `commit` and `close` call this with a list of AcknowledgementResult: what
        came of acknowledgements since the last call. Without one, failures are logged."""
        self._engine.callback = callback

    def acquisition_lock_timeout_ms(self) -> int | None:
        """How long a record is held after it was acquired; None before the first response."""
        return self._engine.state.lock_timeout_ms

    # --- observation and the end --------------------------------------------------------------

    def statistics(self) -> ShareConsumerStatistics:
        """What the consumer has done since it was created, and what it waits for now."""
        return self._engine.statistics()

    def close(self) -> None:
        """Send the acknowledgements that were made, release every other record, leave the group. A
        second call does nothing."""
        self.wakeup()
        if not self._guard.close():
            return
        try:
            self._steps.run(self._engine.leave())
            for letters in self._letters:
                letters.close()
        except (KafkaError, ClosedError) as e:
            log.warning("closing the share consumer: %s", e)
        finally:
            self._shut()
            self._guard.release()

    def _shut(self) -> None:
        self._guard.is_closed = True
        try:
            self._thread.call(self._engine.stop(), CALL_TIMEOUT_S)
        except (KafkaError, ClosedError) as e:
            log.warning("stopping the share consumer's loop: %s", e)
        self._thread.stop()
