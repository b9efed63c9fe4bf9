"""`Consumer`: reads records from topics, in a group or alone, one by one or as Arrow.

    with Consumer("flights", bootstrap_servers="127.0.0.1:9092", group_id="delays") as consumer:
        for record in consumer:
            print(record.offset, record.value)

A background thread fetches ahead. Decoding and rebalances happen in the caller's `poll`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from headwater.client.config_names import keywords_of
from headwater.client.consumer_coordinator import CALL_TIMEOUT_S, RebalanceListener
from headwater.client.consumer_engine import ConsumerEngine
from headwater.client.consumer_options import (
    HEARTBEAT_INTERVAL_MS,
    SESSION_TIMEOUT_MS,
    STRATEGY,
    AssignorChoice,
    AutoOffsetReset,
    ConsumerOptions,
    GroupProtocol,
    IsolationLevel,
    OnError,
)
from headwater.client.consumer_positions import EARLIEST, LATEST
from headwater.client.consumer_statistics import consumer_metrics
from headwater.client.errors import ClosedError
from headwater.client.interceptors import Interceptor
from headwater.client.loop_thread import LoopThread
from headwater.client.option_rules import checked
from headwater.client.partition_names import (
    ByPartition,
    Offsets,
    PartitionName,
    named_partition,
)
from headwater.client.producer import Producer
from headwater.client.security_options import SecurityOptions
from headwater.client.serializers.values import Topic
from headwater.client.steps import ThreadSteps
from headwater.client.subscription_state import SubscriptionType
from headwater.client.topic_watch import checked_topics
from headwater.client.typed_reader import DeadLetters, TypedReader
from headwater.client.typed_records import OnUndecodable, Raise, TypedDecoding
from headwater.client.values import (
    ConsumerGroupMetadata,
    ConsumerRecord,
    ConsumerStatistics,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicPartition,
)
from headwater.errors import KafkaError

if TYPE_CHECKING:
    import pyarrow as pa


K = TypeVar("K")
V = TypeVar("V")
RAISE = Raise()

log = logging.getLogger(__name__)


class Consumer:
    """Reads records.

    Options have Kafka's names with underscores for dots; times are milliseconds, sizes bytes. One
    thread at a time may use a consumer; `wakeup` and `close` may be called from another one.

    Raises OptionError for an unknown option or a value of a wrong type, UsageError for other bad
    values, NoBrokersAvailableError when no broker answers within `bootstrap_timeout_ms`.
    """

    def __init__(
        self,
        *topics: str | Topic[Any, Any],
        bootstrap_servers: str | Sequence[str] = "127.0.0.1:9092",
        group_id: str | None = None,
        group_instance_id: str | None = None,
        group_protocol: GroupProtocol = "classic",
        group_remote_assignor: str | None = None,
        client_id: str = "headwater-consumer",
        client_rack: str = "",
        auto_offset_reset: AutoOffsetReset = "latest",
        isolation_level: IsolationLevel = "read_committed",
        enable_auto_commit: bool = True,
        auto_commit_interval_ms: float = 5_000,
        partition_assignment_strategy: AssignorChoice | Sequence[AssignorChoice] = STRATEGY,
        interceptors: Sequence[Interceptor] = (),
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        heartbeat_interval_ms: float = HEARTBEAT_INTERVAL_MS,
        max_poll_interval_ms: int = 300_000,
        max_poll_records: int = 500,
        fetch_min_bytes: int = 1,
        fetch_max_bytes: int = 52_428_800,
        fetch_max_wait_ms: int = 500,
        max_partition_fetch_bytes: int = 1_048_576,
        check_crcs: bool = True,
        exclude_internal_topics: bool = True,
        allow_auto_create_topics: bool = False,
        consumer_timeout_ms: float | None = None,
        request_timeout_ms: int = 30_000,
        retry_backoff_ms: float = 50,
        retry_backoff_max_ms: float = 1_000,
        metadata_max_age_ms: float = 300_000,
        default_api_timeout_ms: float = 60_000,
        socket_connection_setup_timeout_ms: float = 10_000,
        bootstrap_timeout_ms: float = 10_000,
        server_error_timeout_ms: float = 10_000,
        stale_leader_timeout_ms: float = 30_000,
        outage_report_ms: float = 5_000,
        on_error: OnError | None = None,
        **security: Unpack[SecurityOptions],
    ) -> None:
        """`topics` are subscribed to at once. With `group_protocol` "consumer" the group's
        coordinator assigns the partitions (KIP-848), by `group_remote_assignor` ("uniform",
        "range") if one is given; it resolves patterns, by RE2, and the broker's settings take the
        place of `partition_assignment_strategy`, `session_timeout_ms` and `heartbeat_interval_ms`,
        which are refused then.
        `bootstrap_servers`: `"host:port,host:port"` or a list of such. Two defaults differ from
        Java's: with `isolation_level` "read_committed" records of aborted transactions are not
        returned, and with `allow_auto_create_topics` false a subscription creates no topic.
        Iteration ends after `consumer_timeout_ms` without records. `server_error_timeout_ms`:
        `poll` raises an UNKNOWN_SERVER_ERROR that lasts so long. `stale_leader_timeout_ms`: for so
        long no leader is read from whose epoch is older than an offset's (KIP-320). What cannot be
        reached for `outage_report_ms` is logged, and given to `on_error` as a KafkaError, on the
        consumer's background thread.
        """
        options = checked("Consumer", ConsumerOptions, locals(), security)
        self._login: dict[str, Any] = {"bootstrap_servers": bootstrap_servers, **security}
        self._letters: list[DeadLetters] = []
        self._begin(options, checked_topics(topics))

    def _begin(self, options: ConsumerOptions, names: list[str]) -> None:
        """Build the parts, connect, and subscribe to `names`."""
        self._options = options
        self._thread = LoopThread(options.client_id or "headwater-consumer")
        self._engine = ConsumerEngine(options, self._thread)
        self._guard = self._engine.guard
        self._steps = ThreadSteps(self._thread, self._engine.state)
        try:
            self._thread.call(self._engine.start())
            if names:
                self.subscribe(names)
        except BaseException:
            self._shut()
            raise

    @classmethod
    def from_config(cls, config: Mapping[str, Any], *topics: str | Topic[Any, Any]) -> Consumer:
        """A consumer of a configuration with confluent-kafka's or Kafka's names, as
        {"bootstrap.servers": "host:9092", "group.id": "delays"}. Raises OptionError for a name that
        it does not have."""
        return cls(*topics, **keywords_of("Consumer", ConsumerOptions, config))

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # --- what to read -------------------------------------------------------------------------

    def subscribe(
        self,
        topics: str | Iterable[str | Topic[Any, Any]] = (),
        *,
        pattern: str | re.Pattern[str] | None = None,
        on_assign: RebalanceListener | None = None,
        on_revoke: RebalanceListener | None = None,
        on_lost: RebalanceListener | None = None,
    ) -> None:
        """Read these topics, or all whose whole name matches `pattern`. Replaces an earlier list;
        an empty one unsubscribes.

        The members of a group share the partitions. Without a group this consumer reads them all,
        those that appear later from their beginning. `poll` calls the listeners: `on_revoke` before
        partitions are given up, `on_assign` after others were assigned. `on_lost` (without it
        `on_revoke`) is called when the group has removed this member: the partitions may be others'
        already, so that nothing can be committed for them. `unsubscribe` and `close` call
        `on_revoke`, too; it may commit.

        Raises OptionError, UsageError; IllegalStateError when partitions were assigned, or when
        topics and a pattern alternate without `unsubscribe`. Without a group also
        UnknownTopicOrPartitionError.
        """
        with self._guard:
            self._steps.run(self._engine.subscribe(topics, pattern, on_assign, on_revoke, on_lost))

    def assign(self, partitions: Iterable[PartitionName]) -> None:
        """Read exactly these partitions, whatever a group has assigned.

        Raises OptionError, UnknownTopicOrPartitionError; IllegalStateError after `subscribe`.
        """
        with self._guard:
            self._steps.run(self._engine.assign(partitions), self._limit_s)

    def unsubscribe(self) -> None:
        """Give up every partition, and leave the group at once."""
        with self._guard:
            self._steps.run(self._engine.unsubscribe())

    def assignment(self) -> list[TopicPartition]:
        """The partitions that are read now, sorted."""
        return sorted(self._engine.state.order)

    def partitions_for(self, topic: str) -> int:
        """The number of partitions of a topic. Never creates the topic.

        Raises UnknownTopicOrPartitionError, OptionError, UsageError.
        """
        with self._guard:
            return self._thread.call(self._engine.partitions_for(topic), self._limit_s)

    @property
    def _limit_s(self) -> float:
        return self._options.default_api_timeout_ms / 1000

    # --- reading ------------------------------------------------------------------------------

    def poll(
        self, timeout_ms: float = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Up to `max_records` records (by default `max_poll_records`) by partition; empty when none
        came within `timeout_ms`.

        Raises IllegalStateError without a subscription, and the errors of fetches and of the group:
        OffsetOutOfRangeError, CorruptRecordError, UnknownServerError, ...
        """
        with self._guard:
            return self._steps.run(self._engine.poll(timeout_ms, max_records))

    def poll_arrow(self, max_records: int = 1_000_000, timeout_ms: float = 1000) -> pa.RecordBatch:
        """The next records as one pyarrow.RecordBatch with Kafka's columns; empty when none came
        within `timeout_ms`.

        Whole fetches are returned, so that there may be some more than `max_records`. Needs the
        `arrow` extra. Raises what `poll` raises.
        """
        from headwater.client import table as tables  # noqa: PLC0415 - optional extra

        steps = self._engine.poll_decoded(tables.fetch_to_arrow, max_records, timeout_ms)
        with self._guard:
            return tables.join_batches(self._steps.run(steps))

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Records without end, or until none came for `consumer_timeout_ms`, or until `close`."""
        return self._engine.reading.iterate(self.poll, self._options.consumer_timeout_ms)

    def typed(
        self,
        *topics: Topic[K, V],
        on_undecodable: OnUndecodable = RAISE,
        producer: Producer | None = None,
    ) -> TypedReader[K, V]:
        """A reader of these topics' records with decoded keys and values; it subscribes to the
        topics if nothing is subscribed to or assigned.

        `on_undecodable`: Raise(), Skip(), DeadLetter(topic), or a function of record and error that
        returns one of them. Dead letters go through `producer`, or through one that the consumer
        makes and closes; they are acknowledged before the records after them are returned, so
        before any commit behind them.
        """
        decoding = TypedDecoding(topics, on_undecodable)
        with self._guard:
            if self._engine.state.type is SubscriptionType.NONE:
                self.subscribe(decoding.topics)
        letters = DeadLetters(lambda: Producer(**self._login), producer)
        self._letters.append(letters)
        return TypedReader(self._engine, self.poll, decoding, letters)

    def wakeup(self) -> None:
        """Make a `poll` that waits return. Any thread may call it."""
        self._engine.reading.wakeup()

    # --- where to read ------------------------------------------------------------------------

    def seek(self, partition: PartitionName, offset: int | OffsetAndMetadata) -> None:
        """Continue at `offset`. With an OffsetAndMetadata's leader epoch, no leader of an older one
        is read from (KIP-320).

        Raises IllegalStateError for a partition that is not assigned, UsageError, OptionError.
        """
        with self._guard:
            self._engine.positions.seek(named_partition(partition), offset)

    def seek_to_beginning(self, *partitions: PartitionName) -> None:
        """Continue at the first offset, of all assigned partitions if none is given."""
        with self._guard:
            self._engine.positions.seek_by_timestamp(partitions, EARLIEST)

    def seek_to_end(self, *partitions: PartitionName) -> None:
        """Continue at the end (the last stable offset under read_committed), of all assigned
        partitions if none is given."""
        with self._guard:
            self._engine.positions.seek_by_timestamp(partitions, LATEST)

    def position(self, partition: PartitionName, timeout_ms: float | None = None) -> int:
        """The next offset to return; waits until it is known. Raises KafkaTimeoutError,
        IllegalStateError, OffsetOutOfRangeError."""
        with self._guard:
            tp = named_partition(partition)
            return self._steps.run(self._engine.positions.position(tp, timeout_ms))

    def pause(self, *partitions: PartitionName) -> None:
        """Return no records of these partitions until `resume`. Their positions stay."""
        with self._guard:
            self._engine.positions.set_paused(partitions, paused=True)

    def resume(self, *partitions: PartitionName) -> None:
        """Return records of paused partitions again."""
        with self._guard:
            self._engine.positions.set_paused(partitions, paused=False)

    def offsets_for_times(
        self, timestamps: ByPartition[int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first offset at or after each timestamp (ms); None if there is none."""
        with self._guard:
            return self._thread.call(self._engine.positions.for_times(timestamps))

    def beginning_offsets(self, partitions: Iterable[PartitionName]) -> dict[TopicPartition, int]:
        """The first offset of each partition."""
        with self._guard:
            return self._thread.call(self._engine.positions.at(partitions, EARLIEST))

    def end_offsets(self, partitions: Iterable[PartitionName]) -> dict[TopicPartition, int]:
        """The offset after the last visible record of each partition (the last stable offset under
        read_committed)."""
        with self._guard:
            return self._thread.call(self._engine.positions.at(partitions, LATEST))

    # --- the group ----------------------------------------------------------------------------

    def commit(self, offsets: Offsets | None = None, timeout_ms: float | None = None) -> None:
        """Commit these next offsets, or the positions of all assigned partitions.

        Raises CommitFailedError after a rebalance, KafkaTimeoutError, InvalidGroupIdError without a
        `group_id`, OptionError, UsageError.
        """
        with self._guard:
            self._steps.run(self._engine.group().commit(offsets, timeout_ms))

    def committed(self, *partitions: PartitionName) -> dict[TopicPartition, OffsetAndMetadata]:
        """The group's committed offsets, of the assigned partitions if none is given. Partitions
        without a commit are left out. Raises InvalidGroupIdError without a `group_id`."""
        with self._guard:
            wanted = [named_partition(tp) for tp in partitions] or self.assignment()
            return self._thread.call(self._engine.group().load_committed(wanted))

    def group_metadata(self) -> ConsumerGroupMetadata:
        """The group and this member, for `Producer.send_offsets` (KIP-447). Raises UsageError with
        enable_auto_commit, InvalidGroupIdError without a `group_id`."""
        return self._engine.group().metadata()

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The next offset of each assigned partition, as `commit()` commits it."""
        return self._engine.state.next_offsets()

    # --- observation and the end --------------------------------------------------------------

    def statistics(self) -> ConsumerStatistics:
        """What the consumer has done since it was created, and what it waits for now."""
        return self._engine.statistics()

    def metrics(self) -> dict[str, float]:
        """The same as numbers, by the names of Kafka's consumer metrics."""
        return consumer_metrics(self.statistics())

    def close(self) -> None:
        """Commit if that is automatic, leave the group, close the connections. A second call does
        nothing."""
        self.wakeup()
        if not self._guard.close():
            return
        try:
            self._steps.run(self._engine.leave())
            for letters in self._letters:
                letters.close()
        finally:
            self._shut()
            self._guard.release()

    def _shut(self) -> None:
        self._guard.is_closed = True
        try:
            self._thread.call(self._engine.stop(), CALL_TIMEOUT_S)
        except (KafkaError, ClosedError) as e:
            log.warning("stopping the consumer's loop: %s", e)
        self._thread.stop()
