"""`AsyncConsumer`: the consumer for asyncio programs.

    async with AsyncConsumer("flights", bootstrap_servers="127.0.0.1:9092", group_id="delays") as c:
        async for record in c:
            print(record.offset, record.value)

Fetches, decoding and heartbeats run on the caller's loop. Nothing is awaited between taking records
and returning them: a cancelled `async for`, `getone` or `getmany` loses none.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from headwater.client.aio.keywords import ConsumerKeywords, options_of
from headwater.client.aio.managed import Managed
from headwater.client.aio.producer import AsyncProducer
from headwater.client.aio.shielding import shielded
from headwater.client.aio.task_steps import TaskSteps
from headwater.client.aio.typed_reader import AsyncDeadLetters, AsyncTypedReader
from headwater.client.config_names import keywords_of
from headwater.client.consumer import Consumer
from headwater.client.consumer_coordinator import RebalanceListener
from headwater.client.consumer_engine import ConsumerEngine
from headwater.client.consumer_options import ConsumerOptions
from headwater.client.consumer_positions import EARLIEST, LATEST
from headwater.client.consumer_statistics import consumer_metrics
from headwater.client.engine_host import EngineName, host_of
from headwater.client.errors import ClosedError, IllegalStateError
from headwater.client.partition_names import ByPartition, Offsets, PartitionName, named_partition
from headwater.client.security_options import SECURITY_OPTIONS
from headwater.client.serializers.values import Topic
from headwater.client.subscription_state import SubscriptionType
from headwater.client.topic_watch import checked_topics
from headwater.client.typed_records import OnUndecodable, Raise, TypedDecoding
from headwater.client.values import (
    ConsumerGroupMetadata,
    ConsumerRecord,
    ConsumerStatistics,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicPartition,
)
from headwater.errors import HeadwaterError

if TYPE_CHECKING:
    import pyarrow as pa

K = TypeVar("K")
V = TypeVar("V")
RAISE = Raise()
ITERATE_POLL_MS = 500

log = logging.getLogger("headwater.client.consumer")


class AsyncConsumer(Managed):
    """Reads records in asyncio tasks.

    Options have the names, the defaults and the meaning of `headwater.Consumer`'s. `engine`: "loop"
    runs on the caller's loop, so that tasks that keep it busy for longer than `session_timeout_ms`
    cost the membership; "thread" runs on a thread of the consumer's own, whatever the loop does.
    Tasks may share a consumer: polls have their turns.
    """

    def __init__(
        self,
        *topics: str | Topic[Any, Any],
        bootstrap_servers: str | Sequence[str] = "127.0.0.1:9092",
        group_id: str | None = None,
        engine: EngineName = "loop",
        **options: Unpack[ConsumerKeywords],
    ) -> None:
        """`topics` are subscribed to by `start`, or `async with`, which connects. Raises
        OptionError, UsageError. `on_error` is called on the engine's loop."""
        given = {"bootstrap_servers": bootstrap_servers, "group_id": group_id, **options}
        self._options = options_of("AsyncConsumer", Consumer, ConsumerOptions, given)
        self._topics = checked_topics(topics)
        security = {name: text for name, text in options.items() if name in SECURITY_OPTIONS}
        self._login: dict[str, Any] = {"bootstrap_servers": bootstrap_servers, **security}
        self._letters: list[AsyncDeadLetters] = []
        self._host = host_of(engine, self._options.client_id or "headwater-consumer")
        self._engine = ConsumerEngine(self._options, self._host)
        self._state = self._engine.state
        self._steps = TaskSteps(self._host, self._state)
        self._turn = asyncio.Lock()
        self._is_started = False
        self._closing: asyncio.Task[None] | None = None

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], *topics: str | Topic[Any, Any]
    ) -> AsyncConsumer:
        """See `Consumer.from_config`."""
        return cls(*topics, **keywords_of("AsyncConsumer", ConsumerOptions, config))

    async def start(self) -> Self:
        """Connect and subscribe. A second call does nothing. Raises NoBrokersAvailableError when no
        broker answers within `bootstrap_timeout_ms`."""
        if not self._is_started:
            self._host.bind()
            self._is_started = True
            try:
                await self._host.call(self._engine.start())
                if self._topics:
                    await self.subscribe(self._topics)
            except BaseException:
                await self.aclose()
                raise
        return self

    def _check_open(self) -> None:
        if not self._engine.guard.is_open:
            raise ClosedError("the consumer is closed")
        if not self._is_started:
            raise IllegalStateError("the consumer is not started: use `async with`, or start()")

    def _check_no_listener(self) -> None:
        if self._steps.is_inside:
            raise IllegalStateError("a listener cannot poll or close the consumer that calls it")

    # --- what to read -------------------------------------------------------------------------

    async def subscribe(
        self,
        topics: str | Iterable[str | Topic[Any, Any]] = (),
        *,
        pattern: str | re.Pattern[str] | None = None,
        on_assign: RebalanceListener | None = None,
        on_revoke: RebalanceListener | None = None,
        on_lost: RebalanceListener | None = None,
    ) -> None:
        """See `Consumer.subscribe`. The listeners may be coroutine functions: they are awaited, in
        the task that polls."""
        self._check_open()
        steps = self._engine.subscribe(topics, pattern, on_assign, on_revoke, on_lost)
        await self._steps.run(steps)

    async def assign(self, partitions: Iterable[PartitionName]) -> None:
        """Read exactly these partitions; see `Consumer.assign`."""
        self._check_open()
        await self._steps.run(self._engine.assign(partitions))

    async def unsubscribe(self) -> None:
        """Give up every partition, and leave the group at once."""
        self._check_open()
        await self._steps.run(self._engine.unsubscribe())

    def assignment(self) -> list[TopicPartition]:
        """The partitions that are read now, sorted."""
        return sorted(self._state.order)

    async def partitions_for(self, topic: str) -> int:
        """The number of partitions of a topic. Never creates the topic.

        Raises UnknownTopicOrPartitionError, OptionError, UsageError.
        """
        self._check_open()
        return await self._host.call(self._engine.partitions_for(topic))

    # --- reading ------------------------------------------------------------------------------

    async def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        """The records, until none came for `consumer_timeout_ms`, or until `aclose`.

        A generator costs half of what a coroutine for each record does. It keeps nothing of its
        own: what a `break` or a cancelled task leaves behind is read by whoever comes next.
        """
        pending, guard = self._state.pending, self._engine.guard
        take = pending.popleft
        while await self._fill(self._options.consumer_timeout_ms):
            while pending and not guard.is_closed:
                yield take()

    async def __anext__(self) -> ConsumerRecord:
        """The next record; StopAsyncIteration where `async for` would end."""
        pending = self._state.pending
        if pending and not self._engine.guard.is_closed:
            return pending.popleft()
        if not await self._fill(self._options.consumer_timeout_ms):
            raise StopAsyncIteration
        return self._state.pending.popleft()

    async def getone(self, timeout_ms: float | None = None) -> ConsumerRecord | None:
        """The next record; None when none came within `timeout_ms`. Raises what `getmany` does."""
        self._check_open()
        if not await self._fill(timeout_ms):
            self._check_open()
            return None
        return self._state.pending.popleft()

    async def _fill(self, timeout_ms: float | None) -> bool:
        """Wait until a record can be taken; False when the time is up or the consumer closed.

        Whoever awaits this takes the record in the same step.
        """
        if not self._is_started:
            self._check_open()
        clock, guard, began = self._engine.clock, self._engine.guard, self._engine.clock.monotonic()
        self._check_no_listener()
        async with self._turn:
            while not guard.is_closed:
                if self._state.pending:
                    return True
                left = None
                if timeout_ms is not None:
                    left = timeout_ms - (clock.monotonic() - began) * 1000
                wait = ITERATE_POLL_MS if left is None else max(0.0, min(left, ITERATE_POLL_MS))
                await asyncio.sleep(0)  # once per poll: buffered records keep the loop for long
                polled = await self._steps.run(self._engine.poll(wait, None))
                for rows in polled.values():
                    self._state.pending.extend(rows)
                if not polled and left is not None and left <= ITERATE_POLL_MS:
                    return False
        return False

    async def getmany(
        self, timeout_ms: float = 0, max_records: int | None = None
    ) -> list[ConsumerRecord]:
        """Up to `max_records` records (by default `max_poll_records`); empty when none came within
        `timeout_ms`. The records of a partition are in its order, and together.

        Raises IllegalStateError without a subscription, ClosedError, and the errors of fetches and
        of the group: OffsetOutOfRangeError, CorruptRecordError, UnknownServerError, ...
        """
        self._check_open()
        self._check_no_listener()
        async with self._turn:
            if not self._state.pending:
                await asyncio.sleep(0)
            polled = await self._steps.run(self._engine.poll(timeout_ms, max_records))
            return [row for rows in polled.values() for row in rows]

    async def poll(
        self, timeout_ms: float = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """The same as `getmany`, by partition."""
        by_partition: dict[TopicPartition, list[ConsumerRecord]] = {}
        for row in await self.getmany(timeout_ms, max_records):
            by_partition.setdefault(TopicPartition(row.topic, row.partition), []).append(row)
        return by_partition

    async def poll_arrow(
        self, max_records: int = 1_000_000, timeout_ms: float = 1000
    ) -> pa.RecordBatch:
        """The next records as one pyarrow.RecordBatch; see `Consumer.poll_arrow`."""
        from headwater.client import table as tables  # noqa: PLC0415 - optional extra

        self._check_open()
        self._check_no_listener()
        steps = self._engine.poll_decoded(tables.fetch_to_arrow, max_records, timeout_ms)
        async with self._turn:
            return tables.join_batches(await self._steps.run(steps))

    async def typed(
        self,
        *topics: Topic[K, V],
        on_undecodable: OnUndecodable = RAISE,
        producer: AsyncProducer | None = None,
    ) -> AsyncTypedReader[K, V]:
        """A reader of these topics' records with decoded keys and values; see `Consumer.typed`.
        Serializers that ask a registry run on a thread, a poll at a time."""
        self._check_open()
        decoding = TypedDecoding(topics, on_undecodable)
        if self._state.type is SubscriptionType.NONE:
            await self.subscribe(decoding.topics)
        letters = AsyncDeadLetters(lambda: AsyncProducer(**self._login), producer)
        self._letters.append(letters)
        return AsyncTypedReader(self._engine, self._fill, decoding, letters)

    def wakeup(self) -> None:
        """Make a `getmany` that waits return what it has."""
        self._engine.reading.wakeup()

    # --- where to read ------------------------------------------------------------------------

    def seek(self, partition: PartitionName, offset: int | OffsetAndMetadata) -> None:
        """Continue at `offset`; see `Consumer.seek`. It acts at once, so do the next four."""
        self._check_open()
        self._engine.positions.seek(named_partition(partition), offset)

    def seek_to_beginning(self, *partitions: PartitionName) -> None:
        """Continue at the first offset, of all assigned partitions if none is given."""
        self._check_open()
        self._engine.positions.seek_by_timestamp(partitions, EARLIEST)

    def seek_to_end(self, *partitions: PartitionName) -> None:
        """Continue at the end, of all assigned partitions if none is given."""
        self._check_open()
        self._engine.positions.seek_by_timestamp(partitions, LATEST)

    def pause(self, *partitions: PartitionName) -> None:
        """Return no records of these partitions until `resume`. Their positions stay."""
        self._check_open()
        self._engine.positions.set_paused(partitions, paused=True)

    def resume(self, *partitions: PartitionName) -> None:
        """Return records of paused partitions again."""
        self._check_open()
        self._engine.positions.set_paused(partitions, paused=False)

    async def position(self, partition: PartitionName, timeout_ms: float | None = None) -> int:
        """The next offset to return; waits until it is known. Raises KafkaTimeoutError,
        IllegalStateError, OffsetOutOfRangeError."""
        self._check_open()
        steps = self._engine.positions.position(named_partition(partition), timeout_ms)
        return await self._steps.run(steps)

    async def offsets_for_times(
        self, timestamps: ByPartition[int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first offset at or after each timestamp (ms); None if there is none."""
        self._check_open()
        return await self._host.call(self._engine.positions.for_times(timestamps))

    async def beginning_offsets(
        self, partitions: Iterable[PartitionName]
    ) -> dict[TopicPartition, int]:
        """The first offset of each partition."""
        self._check_open()
        return await self._host.call(self._engine.positions.at(partitions, EARLIEST))

    async def end_offsets(self, partitions: Iterable[PartitionName]) -> dict[TopicPartition, int]:
        """The offset after the last visible record of each partition (the last stable offset under
        read_committed)."""
        self._check_open()
        return await self._host.call(self._engine.positions.at(partitions, LATEST))

    # --- the group ----------------------------------------------------------------------------

    async def commit(self, offsets: Offsets | None = None, timeout_ms: float | None = None) -> None:
        """Commit these next offsets, or the positions of all assigned partitions: of records that
        were returned, up to the last one that the iteration has yielded.

        Raises CommitFailedError after a rebalance, KafkaTimeoutError, InvalidGroupIdError without a
        `group_id`, OptionError, UsageError.
        """
        self._check_open()
        await self._steps.run(self._engine.group().commit(offsets, timeout_ms))

    async def committed(
        self, *partitions: PartitionName
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The group's committed offsets, of the assigned partitions if none is given; see
        `Consumer.committed`."""
        self._check_open()
        wanted = [named_partition(tp) for tp in partitions] or self.assignment()
        return await self._host.call(self._engine.group().load_committed(wanted))

    def group_metadata(self) -> ConsumerGroupMetadata:
        """The group and this member, for `AsyncProducer.send_offsets`; see
        `Consumer.group_metadata`."""
        return self._engine.group().metadata()

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The next offset of each assigned partition, as `commit()` commits it."""
        return self._state.next_offsets()

    # --- observation and the end --------------------------------------------------------------

    def statistics(self) -> ConsumerStatistics:
        """What the consumer has done since it was created, and what it waits for now."""
        return self._engine.statistics()

    def metrics(self) -> dict[str, float]:
        """The same as numbers, by the names of Kafka's consumer metrics."""
        return consumer_metrics(self.statistics())

    async def aclose(self) -> None:
        """Commit if that is automatic, leave the group, close the connections. A second call does
        nothing. A cancellation does not cut it short: it is raised once the consumer is closed."""
        self._check_no_listener()
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await shielded(self._closing)

    stop = aclose

    async def _close(self) -> None:
        self._engine.guard.is_closed = True
        if not self._is_started:
            return
        self.wakeup()
        try:
            async with self._turn:  # what polls has returned
                await self._settled()
                await self._steps.run(self._engine.leave())
            for letters in self._letters:
                await letters.aclose()
        finally:
            await self._host.call(self._engine.stop())
            await self._host.stop()

    async def _settled(self) -> None:
        """A rebalance that nobody waits for any more is over."""
        try:
            await self._steps.settle()
        except HeadwaterError as e:
            log.warning("closing the consumer: %s", e)
