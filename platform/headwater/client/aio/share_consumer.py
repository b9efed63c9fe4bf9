"""`AsyncShareConsumer`: a member of a share group for asyncio programs.

    async with AsyncShareConsumer("orders", group_id="pack") as consumer:
        async for record in consumer:
            print(record.offset, record.delivery_count)

Nothing is awaited between taking records and returning them: a cancelled `async for`, `getone` or
`getmany` leaves what was acquired for the next one, and `aclose` releases it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self, TypeVar, Unpack

from headwater.client.aio.keywords import ShareConsumerKeywords, options_of
from headwater.client.aio.managed import Managed
from headwater.client.aio.producer import AsyncProducer
from headwater.client.aio.share_typed_reader import AsyncShareTypedReader
from headwater.client.aio.shielding import shielded
from headwater.client.aio.task_steps import TaskSteps
from headwater.client.aio.typed_reader import AsyncDeadLetters
from headwater.client.config_names import keywords_of
from headwater.client.engine_host import EngineName, host_of
from headwater.client.errors import ClosedError, IllegalStateError
from headwater.client.partition_names import PartitionName
from headwater.client.security_options import SECURITY_OPTIONS
from headwater.client.serializers.values import Topic
from headwater.client.share_consumer import ShareConsumer
from headwater.client.share_engine import AcknowledgementCallback, ShareEngine
from headwater.client.share_options import ELSEWHERE, ShareConsumerOptions
from headwater.client.share_typed_reader import ITERATE_POLL_MS
from headwater.client.share_values import AcknowledgeType, ShareConsumerStatistics, ShareRecord
from headwater.client.topic_watch import checked_topics
from headwater.client.typed_records import OnUndecodable, Raise, TypedDecoding, TypedRecord
from headwater.client.values import ConsumerRecord, TopicPartition
from headwater.errors import HeadwaterError, KafkaError

K = TypeVar("K")
V = TypeVar("V")
RAISE = Raise()

log = logging.getLogger("headwater.client.share_consumer")


class AsyncShareConsumer(Managed):
    """Takes records from a share group in asyncio tasks.

    Options have the names, the defaults and the meaning of `headwater.ShareConsumer`'s; `engine` is
    that of `AsyncConsumer`. Tasks may share a consumer: polls have their turns, and in implicit
    mode a poll accepts what any of them was given before.
    """

    def __init__(
        self,
        *topics: str | Topic[Any, Any],
        bootstrap_servers: str | Sequence[str] = "127.0.0.1:9092",
        group_id: str,
        engine: EngineName = "loop",
        **options: Unpack[ShareConsumerKeywords],
    ) -> None:
        """`topics` are subscribed to by `start`, or `async with`, which connects. Raises
        OptionError, UsageError. `on_error` is called on the engine's loop."""
        given = {"bootstrap_servers": bootstrap_servers, "group_id": group_id, **options}
        self._options = options_of(
            "AsyncShareConsumer", ShareConsumer, ShareConsumerOptions, given, ELSEWHERE
        )
        self._topics = checked_topics(topics)
        security = {name: text for name, text in options.items() if name in SECURITY_OPTIONS}
        self._login: dict[str, Any] = {"bootstrap_servers": bootstrap_servers, **security}
        self._letters: list[AsyncDeadLetters] = []
        self._host = host_of(engine, self._options.client_id or "headwater-share-consumer")
        self._engine = ShareEngine(self._options, self._host)
        self._steps = TaskSteps(self._host, self._engine.changes)
        self._turn = asyncio.Lock()
        self._is_started = False
        self._closing: asyncio.Task[None] | None = None

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], *topics: str | Topic[Any, Any]
    ) -> AsyncShareConsumer:
        """See `ShareConsumer.from_config`."""
        return cls(*topics, **keywords_of("AsyncShareConsumer", ShareConsumerOptions, config))

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
        if self._engine.guard.is_closed:
            raise ClosedError("the share consumer is closed")
        if not self._is_started:
            raise IllegalStateError(
                "the share consumer is not started: use `async with`, or start()"
            )

    # --- what to read -------------------------------------------------------------------------

    async def subscribe(self, topics: str | Iterable[str | Topic[Any, Any]]) -> None:
        """Take records of these topics; see `ShareConsumer.subscribe`."""
        self._check_open()
        async with self._turn:
            await self._steps.run(self._engine.subscribe(topics))

    async def unsubscribe(self) -> None:
        """Send the acknowledgements that were made, release the other records, leave the group."""
        self._check_open()
        async with self._turn:
            await self._steps.run(self._engine.unsubscribe())

    def subscription(self) -> list[str]:
        """The topics that are subscribed to."""
        return list(self._engine.member.topics)

    # --- reading ------------------------------------------------------------------------------

    def __aiter__(self) -> AsyncShareConsumer:
        return self

    async def __anext__(self) -> ShareRecord:
        """The next record; in implicit mode the one before is accepted. The iteration ends after
        `consumer_timeout_ms` without a record, or at `aclose`."""
        if not self._is_started:
            self._check_open()
        record = await self._one(self._options.consumer_timeout_ms)
        if record is None:
            raise StopAsyncIteration
        return record

    async def getone(self, timeout_ms: float | None = None) -> ShareRecord | None:
        """The next record; None when none came within `timeout_ms`. Raises what `getmany` does."""
        self._check_open()
        record = await self._one(timeout_ms)
        if record is None:
            self._check_open()
        return record

    async def _one(self, timeout_ms: float | None) -> ShareRecord | None:
        clock, guard, began = self._engine.clock, self._engine.guard, self._engine.clock.monotonic()
        async with self._turn:
            while not guard.is_closed:
                left = ITERATE_POLL_MS
                if timeout_ms is not None:
                    left = timeout_ms - (clock.monotonic() - began) * 1000
                wait = max(0.0, min(left, ITERATE_POLL_MS))
                rows = await self._steps.run(self._engine.take(wait, 1, flush=False))
                if rows:
                    return rows[0]
                if timeout_ms is not None and left <= ITERATE_POLL_MS:
                    return None
        return None

    async def getmany(
        self, timeout_ms: float = 0, max_records: int | None = None
    ) -> list[ShareRecord]:
        """Up to `max_records` records (by default `max_poll_records`); empty when none came within
        `timeout_ms`. In implicit mode those before are accepted.

        Raises what `ShareConsumer.poll` raises, and ClosedError.
        """
        self._check_open()
        limit = self._engine.limit(max_records)
        async with self._turn:
            await asyncio.sleep(0)  # buffered records keep the loop otherwise
            return await self._steps.run(self._engine.take(timeout_ms, limit))

    async def poll(
        self, timeout_ms: float = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ShareRecord]]:
        """The same as `getmany`, by partition."""
        polled: dict[TopicPartition, list[ShareRecord]] = {}
        for row in await self.getmany(timeout_ms, max_records):
            polled.setdefault(TopicPartition(row.topic, row.partition), []).append(row)
        return polled

    async def typed(
        self,
        *topics: Topic[K, V],
        on_undecodable: OnUndecodable = RAISE,
        producer: AsyncProducer | None = None,
    ) -> AsyncShareTypedReader[K, V]:
        """A reader of these topics' records with decoded keys and values; see
        `ShareConsumer.typed`. Serializers that ask a registry run on a thread, a poll at a time."""
        self._check_open()
        decoding = TypedDecoding(topics, on_undecodable)
        if not self._engine.member.topics:
            await self.subscribe(decoding.topics)
        letters = AsyncDeadLetters(lambda: AsyncProducer(**self._login), producer)
        self._letters.append(letters)
        return AsyncShareTypedReader(self._engine, self._steps, self._turn, decoding, letters)

    def wakeup(self) -> None:
        """Make a `getmany` that waits return."""
        self._engine.wakeup()

    # --- acknowledgements ---------------------------------------------------------------------

    def acknowledge(
        self,
        record: ConsumerRecord | TypedRecord[Any, Any],
        type: AcknowledgeType = AcknowledgeType.ACCEPT,
    ) -> None:
        """What becomes of a record; see `ShareConsumer.acknowledge`. It acts at once, and is sent
        by the next poll or `commit`."""
        self._check_open()
        self._engine.acknowledge(record, type)

    def acknowledge_offset(
        self,
        partition: PartitionName,
        offset: int,
        type: AcknowledgeType = AcknowledgeType.ACCEPT,
    ) -> None:
        """The same, by partition and offset."""
        self._check_open()
        self._engine.acknowledge_offset(partition, offset, type)

    async def commit(
        self, timeout_ms: float | None = None
    ) -> dict[TopicPartition, KafkaError | None]:
        """Send the acknowledgements and wait for their outcome; see `ShareConsumer.commit`. A
        cancellation ends the wait alone."""
        self._check_open()
        return await self._steps.run(self._engine.commit(timeout_ms))

    def commit_async(self) -> None:
        """Send them without waiting: the acknowledgement commit callback gets the outcome."""
        self._check_open()
        self._engine.commit_async()

    def set_acknowledgement_commit_callback(self, callback: AcknowledgementCallback | None) -> None:
        """See `ShareConsumer.set_acknowledgement_commit_callback`; it may be a coroutine
        function."""
        self._engine.callback = callback

    def acquisition_lock_timeout_ms(self) -> int | None:
        """How long a record is held after it was acquired; None before the first response."""
        return self._engine.state.lock_timeout_ms

    # --- observation and the end --------------------------------------------------------------

    def statistics(self) -> ShareConsumerStatistics:
        """What the consumer has done since it was created, and what it waits for now."""
        return self._engine.statistics()

    async def aclose(self) -> None:
        """Send the acknowledgements that were made, release every other record, leave the group. A
        second call does nothing. A cancellation is raised once the consumer is closed."""
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
                await self._steps.run(self._engine.leave())
            for letters in self._letters:
                await letters.aclose()
        except HeadwaterError as e:
            log.warning("closing the share consumer: %s", e)
        finally:
            await self._host.call(self._engine.stop())
            await self._host.stop()
