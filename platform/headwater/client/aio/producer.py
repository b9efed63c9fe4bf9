"""`AsyncProducer`: the producer for asyncio programs.

    async with AsyncProducer("127.0.0.1:9092") as producer:
        delivery = await producer.send("flights", b"value", key=b"N14228")
        print((await delivery).offset)

`await send(...)` waits for room only, then the record is queued; the delivery is awaited, or not.
Batches leave from the caller's own loop: no record crosses a thread. Use it on that loop only.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, overload

from headwater.client.aio.deliveries import Delivery, TableDelivery, TaskCompletion
from headwater.client.aio.keywords import ProducerKeywords, options_of
from headwater.client.aio.managed import Managed
from headwater.client.aio.shielding import shielded
from headwater.client.aio.task_accumulator import BufferFullError, TaskAccumulator
from headwater.client.config_names import keywords_of
from headwater.client.engine_host import EngineName, host_of
from headwater.client.errors import (
    AbortableTransactionError,
    IllegalStateError,
    KafkaTimeoutError,
)
from headwater.client.partition_names import Offsets
from headwater.client.prepared_transaction import PreparedTransaction
from headwater.client.producer import Producer
from headwater.client.producer_engine import ProducerEngine
from headwater.client.producer_options import ProducerOptions
from headwater.client.record_sending import ArrowStream, Blob, HeaderList, RecordSending
from headwater.client.serializers.values import Topic
from headwater.client.topic_routes import RouteNotLoadedError, TopicRoute, check_partition
from headwater.client.transactional import GroupMember, TransactionVerbs, group_offsets
from headwater.client.values import ConsumerGroupMetadata, ProducerStatistics, Unacked
from headwater.errors import HeadwaterError
from headwater.system import SystemClock

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
CLOSE_TIMEOUT_MS = 30_000
METADATA_MARGIN_S = 5.0

log = logging.getLogger("headwater.client.producer")


class NotQueuedError(HeadwaterError):
    """What interceptors hear of a record whose task was cancelled while it waited for room."""


class AsyncProducer(RecordSending[Delivery], Managed):
    """Sends records from asyncio tasks.

    Options have the names, the defaults and the meaning of `headwater.Producer`'s. `engine`: "loop"
    sends from the caller's loop, "thread" from a thread of the producer's own.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] = "127.0.0.1:9092",
        *,
        engine: EngineName = "loop",
        **options: Unpack[ProducerKeywords],
    ) -> None:
        """Checks the options; `start`, or `async with`, connects. Raises OptionError, UsageError.
        `on_error` is called on the engine's loop."""
        given = {"bootstrap_servers": bootstrap_servers, **options}
        self._options = options_of("AsyncProducer", Producer, ProducerOptions, given)
        clock = SystemClock()
        host = self._host = host_of(engine, self._options.client_id or "headwater-producer")
        self._completion = TaskCompletion(clock.monotonic, host)
        made: ProducerEngine[TaskAccumulator] = ProducerEngine(
            self._options, host, clock, self._completion, lambda parts: TaskAccumulator(parts, host)
        )
        super().__init__(made, Delivery)
        self._tasks = made.accumulator
        self._verbs: TransactionVerbs | None = None
        if made.transactions is not None:
            self._verbs = TransactionVerbs(made.transactions, made.accumulator, self._options)
        self._fetching: dict[str, asyncio.Task[TopicRoute]] = {}
        self._is_started = False
        self._closing: asyncio.Task[None] | None = None

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> AsyncProducer:
        """See `Producer.from_config`."""
        return cls(**keywords_of("AsyncProducer", ProducerOptions, config))

    async def start(self) -> Self:
        """Connect. A second call does nothing. Raises NoBrokersAvailableError when no broker
        answers within `bootstrap_timeout_ms`."""
        if not self._is_started:
            self._host.bind()
            self._is_started = True
            try:
                await self._host.call(self._engine.start())
            except BaseException:
                await self.aclose(0)
                raise
        return self

    # --- sending ------------------------------------------------------------------------------

    try_send = RecordSending.queue_record

    @overload
    async def send(
        self,
        topic: str,
        value: Blob | None = None,
        key: Blob | None = None,
        headers: HeaderList | None = None,
        timestamp: int | datetime | None = None,
        partition: int | None = None,
    ) -> Delivery: ...

    @overload
    async def send(
        self,
        topic: Topic[K, V],
        value: V,
        key: K | None = None,
        headers: HeaderList | None = None,
        timestamp: int | datetime | None = None,
        partition: int | None = None,
    ) -> Delivery: ...

    async def send(
        self,
        topic: str | Topic[Any, Any],
        value: Any = None,
        key: Any = None,
        headers: HeaderList | None = None,
        timestamp: int | datetime | None = None,
        partition: int | None = None,
    ) -> Delivery:
        """Wait for room and queue a record; `await` the delivery for its RecordMetadata.

        A task that is cancelled in here has queued nothing. Tasks that wait for room have it in
        their order. Arguments and errors are those of `Producer.send`: after `max_block_ms`
        BufferExhaustedError, which says what keeps the memory.
        """
        if type(topic) is not str or self._chain is not None:
            return await self._send_prepared(topic, value, key, headers, timestamp, partition)
        tasks = self._tasks
        if not (tasks.blocked_senders or tasks.is_pausing):
            try:
                return self._append(topic, value, key, headers, timestamp, partition)
            except (BufferFullError, RouteNotLoadedError):
                pass  # below it waits for what is missing
        return await self._send_in_turn(
            functools.partial(self._append, topic, value, key, headers, timestamp), topic, partition
        )

    async def _send_prepared(self, topic: str | Topic[Any, Any], *arguments: Any) -> Delivery:
        """Serializers and interceptors have their turn once, before any wait for room."""
        if isinstance(topic, Topic) and topic.may_block_at_send:
            row = await asyncio.to_thread(self._prepared, topic, *arguments)
        else:
            row = self._prepared(topic, *arguments)
        tasks = self._tasks
        if not (tasks.blocked_senders or tasks.is_pausing):
            try:
                return self._queue_row(row)
            except (BufferFullError, RouteNotLoadedError):
                pass  # below it waits for what is missing
            except Exception as error:
                self._refused(row, error)
                raise
        try:
            return await self._send_in_turn(
                lambda partition: self._queue_row(row._replace(partition=partition)),
                row.topic,
                row.partition,
            )
        except asyncio.CancelledError:
            self._refused(row, NotQueuedError("the task was cancelled before it had room"))
            raise
        except Exception as error:
            self._refused(row, error)
            raise

    async def _send_in_turn(
        self, append: Callable[[int | None], Delivery], topic: str, partition: int | None
    ) -> Delivery:
        while True:
            try:
                return await self._tasks.in_turn(functools.partial(append, partition))
            except RouteNotLoadedError as e:
                may_create = e.partition is None and self._options.allow_auto_create_topics
                route = await self._fetch(topic, auto_create=may_create)
                check_partition(topic, route, e.partition)
                partition = e.partition if e.partition is not None else partition

    def _find_route(self, topic: str) -> TopicRoute:
        if not self._is_started:
            raise IllegalStateError("the producer is not started: use `async with`, or start()")
        if self._accumulator.check_send is not None:
            self._accumulator.check_send()  # before a topic is created
        known = self._routes.known(topic)
        if known is None:
            raise RouteNotLoadedError(
                f"the metadata of {topic} is not loaded: await send(), or partitions_for() once"
            )
        return known

    async def _fetch(self, topic: str, *, auto_create: bool) -> TopicRoute:
        """The route by fresh metadata: one request for all tasks that wait for the topic."""
        task = self._fetching.get(topic)
        if task is None:
            work = self._host.call(self._routes.fetch(topic, auto_create=auto_create))
            task = self._fetching[topic] = asyncio.create_task(work)
            task.add_done_callback(lambda done: self._fetched(topic, done))
        limit_s = self._options.max_block_ms / 1000
        try:
            async with asyncio.timeout(limit_s + METADATA_MARGIN_S) as limit:
                return await asyncio.shield(task)
        except TimeoutError as e:
            if not limit.expired():
                raise
            raise KafkaTimeoutError(f"no metadata of {topic} within {limit_s:g} s") from e

    def _fetched(self, topic: str, task: asyncio.Task[TopicRoute]) -> None:
        del self._fetching[topic]
        if not task.cancelled():
            task.exception()  # each task that waits raises it; there may be none

    async def partitions_for(self, topic: str) -> int:
        """The number of partitions of a topic. Never creates the topic.

        Raises UnknownTopicOrPartitionError.
        """
        known = self._routes.known(topic)
        return (known or await self._fetch(topic, auto_create=False)).count

    async def send_table(
        self,
        topic: str,
        table: pa.Table | pa.RecordBatch | pd.DataFrame | ArrowStream,
        key: str | None = None,
        value: str | Sequence[str] | None = None,
        headers: str | None = None,
        timestamp: str | int | None = None,
        partition: int | str | None = None,
    ) -> TableDelivery:
        """Send each row of a table; `await` the delivery for its SendSummary.

        Rows are encoded on a thread: the loop goes on. For the arguments see `Producer.send_table`.
        """
        from headwater.client import table as tables  # noqa: PLC0415 - optional extra

        known = self._by_topic.get(topic)
        auto_create = self._options.allow_auto_create_topics
        route = known or await self._fetch(topic, auto_create=auto_create)
        built = tables.table_batches(
            table,
            tables.TablePlan(
                key=key, value=value, headers=headers, timestamp=timestamp, partition=partition
            ),
            partitions=route.count,
            now_ms=self._now_ms(),
            compression=self._options.compression_type,
            batch_bytes_max=min(self._options.max_request_size, tables.TABLE_BATCH_BYTES),
            partitioner=self._options.partitioner,
        )
        sent, rows = [], 0
        while (item := await asyncio.to_thread(next, built, None)) is not None:
            index, data, count = item
            add = functools.partial(self._tasks.add_built, route.queues[index], data, count)
            sent.append(await self._tasks.in_turn(add))
            rows += count
        return TableDelivery(sent, rows)

    async def flush(self, timeout_ms: float | None = None) -> None:
        """Wait until each record sent before is acknowledged or has failed; those whose `send`
        still waits for room are among them.

        Raises KafkaTimeoutError after `timeout_ms`: it names the partitions that it waits for, the
        cause, and for how long.
        """
        waiting = None
        self._tasks.flushing += 1
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000) as limit:
                await self._tasks.turn_passed()
                waiting = self._tasks.unfinished()
                if waiting:
                    self._host.post(self._engine.sender.drain)
                for batch in waiting:
                    if not batch.is_done:
                        await self._completion.arrived(batch)
        except TimeoutError:
            if not limit.expired():
                raise
            left = self._tasks.unfinished() if waiting is None else waiting
            raise self._engine.late(left, (timeout_ms or 0) / 1000) from None
        finally:
            self._tasks.flushing -= 1

    # --- transactions -------------------------------------------------------------------------

    def _transactional(self) -> TransactionVerbs:
        if self._verbs is None:
            raise IllegalStateError("this producer has no transactions: give it a transactional_id")
        return self._verbs

    async def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return await self._host.call(work)

    async def init_transactions(
        self, timeout_ms: float | None = None, *, keep_prepared: bool = False
    ) -> PreparedTransaction | None:
        """See `Producer.init_transactions`; so for the calls below, with their errors."""
        verbs = self._transactional()
        limit = verbs.limit_ms(timeout_ms)
        return await self._call(verbs.init(limit, keep_prepared=keep_prepared))

    async def begin_transaction(self) -> None:
        """Open a transaction: `send` and `send_offsets` are part of it."""
        await self._call(self._transactional().begin())

    async def commit_transaction(self, timeout_ms: float | None = None) -> None:
        """Send what is queued, then commit. Cancelled, it goes on: the same call waits for it."""
        verbs = self._transactional()
        await self._call(verbs.commit(verbs.limit_ms(timeout_ms)))

    async def abort_transaction(self, timeout_ms: float | None = None) -> None:
        """Drop what is queued, then abort."""
        verbs = self._transactional()
        await self._call(verbs.abort(verbs.limit_ms(timeout_ms)))

    async def prepare(self, timeout_ms: float | None = None) -> PreparedTransaction:
        """Send what is queued and leave the transaction open; see `Producer.prepare`."""
        verbs = self._transactional()
        return await self._call(verbs.prepare(verbs.limit_ms(timeout_ms)))

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """`async with producer.transaction():` begins one, commits at the end, aborts at an
        exception or a cancellation.

        An AbortableTransactionError means that it was aborted: run the block again.
        """
        verbs = self._transactional()
        await self._call(verbs.begin())
        try:
            yield
        except BaseException as error:
            await shielded(self._call(verbs.abort_after(error)))
            raise
        try:
            await self.commit_transaction()
        except AbortableTransactionError as error:
            await shielded(self._call(verbs.abort_after(error)))
            raise

    async def send_offsets(
        self,
        offsets: Offsets | None,
        group: ConsumerGroupMetadata | GroupMember,
        timeout_ms: float | None = None,
    ) -> None:
        """Commit a group's offsets with the transaction; see `Producer.send_offsets`."""
        verbs = self._transactional()
        rows, metadata = group_offsets(offsets, group)
        await self._call(verbs.send_offsets(rows, metadata, verbs.limit_ms(timeout_ms)))

    send_offsets_to_transaction = send_offsets

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

    async def aclose(self, timeout_ms: float | None = CLOSE_TIMEOUT_MS) -> None:
        """Send what is queued, then stop; records that are left after `timeout_ms` fail with
        ClosedError. An open transaction is aborted, a prepared one is not.

        A cancellation does not cut it short: it is raised once the producer is closed.
        """
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(timeout_ms))
        await shielded(self._closing)

    stop = aclose

    async def _close(self, timeout_ms: float | None) -> None:
        if not self._is_started:
            self._accumulator.close()
            return
        try:
            if self._verbs is not None:
                limit = CLOSE_TIMEOUT_MS if timeout_ms is None else timeout_ms
                await self._call(self._verbs.close(limit))
            self._accumulator.close()
            await self.flush(timeout_ms)
        except KafkaTimeoutError as e:
            log.warning("closing the producer: %s", e.detail)
        finally:
            self._accumulator.close()
            self._host.post(self._engine.fail_everything)
            await self._host.call(self._engine.stop())
            await self._host.stop()
