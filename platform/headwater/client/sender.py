"""The producer's shell on the loop: drains partition queues into Produce requests, reads replies.

A node is sent to only over an open connection, synchronously, so batches of a partition leave in
the order they were taken. At most `max_in_flight` requests per node are outstanding.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from headwater.client.cluster import Cluster
from headwater.client.connection import Connection
from headwater.client.core.producing import (
    EPOCH_MAX,
    Batch,
    PartitionQueue,
    Verdict,
)
from headwater.client.errors import KafkaTimeoutError, kafka_error
from headwater.client.futures import Completion
from headwater.client.values import Broker
from headwater.errors import ErrorCode, KafkaError
from headwater.records.builder import stamp_producer
from headwater.wire.apis.k00_produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from headwater.wire.apis.k22_init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from headwater.wire.framing import decode_response, encode_request
from headwater.wire.primitives import ZERO_UUID
from headwater.wire.schema import SchemaError

NAMES_PRODUCE_VERSION = 12
"""The last Produce version that names topics; later ones carry topic ids."""
EXPIRY_TICK_S = 0.5
TRANSACTION_TIMEOUT_MS = 60_000


@dataclass(frozen=True, slots=True)
class SenderOptions:
    """What decides when and how batches leave."""

    acks: int
    linger_s: float
    delivery_timeout_s: float
    request_timeout_ms: int
    max_in_flight: int
    max_request_bytes: int
    compression: int
    compression_level: int | None
    is_idempotent: bool


class Sender:
    """Everything of a producer that runs on the loop. `lock` guards the queues."""

    def __init__(
        self,
        cluster: Cluster,
        options: SenderOptions,
        lock: threading.Lock,
        completion: Completion,
        on_finished: Callable[[list[Batch]], None],
    ) -> None:
        self.queues: dict[tuple[str, int], PartitionQueue] = {}
        self.flushing = 0
        self.wake_is_pending = False
        self._cluster = cluster
        self._options = options
        self._lock = lock
        self._completion = completion
        self._on_finished = on_finished
        self._producer_id = -1
        self._producer_epoch = -1
        self._fatal: Exception | None = None
        self._in_flight: dict[int, int] = {}
        self._connecting: set[int] = set()
        self._held: set[int] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._refreshing = False
        self._initialising = False
        self._clock = cluster.clock

    @property
    def is_idempotent(self) -> bool:
        """True when batches carry producer ids and sequences."""
        return self._options.is_idempotent

    def add_queue(self, queue: PartitionQueue) -> None:
        """Serve another partition; the caller holds the lock."""
        self.queues = {**self.queues, (queue.topic, queue.partition): queue}

    def start(self) -> None:
        """Begin the periodic work; called on the loop."""
        self._spawn(self._expire_for_ever())
        self._spawn(self._refresh_for_ever())

    def stop(self) -> None:
        """End the periodic work."""
        for task in self._tasks:
            task.cancel()
        if self._timer is not None:
            self._timer.cancel()

    def _spawn(self, work: asyncio._CoroutineLike[None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def drain(self) -> None:
        """Send what is due; set the timer for what is due later."""
        self.wake_is_pending = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._options.is_idempotent and self._producer_id < 0:
            self._need_producer_id()
            return
        now = self._clock.monotonic()
        linger_s = 0.0 if self.flushing else self._options.linger_s
        while True:
            by_node, next_due = self._collect(now, linger_s)
            for node_id, batches in by_node.items():
                self._send(node_id, batches)
            if not by_node:
                break
        if next_due is not None:
            delay = max(0.0005, next_due - now)
            self._timer = asyncio.get_running_loop().call_later(delay, self.drain)

    def _collect(self, now: float, linger_s: float) -> tuple[dict[int, list[Batch]], float | None]:
        """One batch per due partition, by leader; and when the next one will be due."""
        by_node: dict[int, list[Batch]] = {}
        sizes: dict[int, int] = {}
        next_due: float | None = None
        with self._lock:
            for queue in self.queues.values():
                due = queue.due_at(linger_s)
                if due is None:
                    continue
                if due > now:
                    next_due = due if next_due is None else min(next_due, due)
                    continue
                node_id = self._ready_node(queue)
                if node_id is None or not queue.may_go_to(node_id):
                    continue
                if queue.wants_new_producer and self._producer_epoch_is_old(queue):
                    self._need_producer_id(anew=True)
                    continue
                held = self._next_size(queue)
                if node_id in sizes and sizes[node_id] + held > self._options.max_request_bytes:
                    continue
                queue.leader_id = node_id
                batch = queue.take(self._producer_id, self._producer_epoch)
                by_node.setdefault(node_id, []).append(batch)
                sizes[node_id] = sizes.get(node_id, 0) + held
        return by_node, next_due

    def _producer_epoch_is_old(self, queue: PartitionQueue) -> bool:
        return queue.producer_id == self._producer_id and queue.producer_epoch >= EPOCH_MAX

    @staticmethod
    def _next_size(queue: PartitionQueue) -> int:
        waiting = queue.retry or queue.sealed
        head = waiting[0] if waiting else queue.open
        return 0 if head is None else head.bytes_held

    def _ready_node(self, queue: PartitionQueue) -> int | None:
        """The leader if a request may go to it now; else what is missing is set in motion."""
        node_id = self._cluster.cache.leader(queue.topic, queue.partition)
        if node_id not in self._cluster.cache.brokers:
            self._need_metadata()
            return None
        if self._in_flight.get(node_id, 0) >= self._options.max_in_flight:
            return None
        connection = self._open_connection(node_id)
        if connection is None:
            if node_id not in self._connecting:
                self._connecting.add(node_id)
                self._spawn(self._connect(node_id))
            return None
        if (held_s := connection.held_s) > 0:
            if node_id not in self._held:
                self._held.add(node_id)
                asyncio.get_running_loop().call_later(held_s, self._release, node_id)
            return None
        return node_id

    def _release(self, node_id: int) -> None:
        self._held.discard(node_id)
        self.drain()

    def _open_connection(self, node_id: int) -> Connection | None:
        return self._cluster.known_connection(node_id)

    async def _connect(self, node_id: int) -> None:
        try:
            await self._cluster.connection(node_id)
        except (OSError, KafkaError):
            await asyncio.sleep(self._cluster.backoff_s(1))
            self._need_metadata()
        finally:
            self._connecting.discard(node_id)
        self.drain()

    def _build(self, batch: Batch) -> bytearray:
        options = self._options
        if batch.data is None:
            assert batch.builder is not None
            batch.data = batch.builder.build(
                compression=options.compression,
                level=options.compression_level,
                producer_id=batch.producer_id,
                producer_epoch=batch.producer_epoch,
                base_sequence=batch.sequence,
            )
            batch.builder = None
        elif options.is_idempotent:
            stamp_producer(batch.data, batch.producer_id, batch.producer_epoch, batch.sequence)
        return batch.data

    def _send(self, node_id: int, batches: list[Batch]) -> None:
        connection = self._open_connection(node_id)
        if connection is None:
            self._all_failed(batches, ConnectionError("the connection was lost"))
            return
        version = connection.version_for(ProduceRequest)
        topics: dict[str, list[PartitionProduceData]] = {}
        for batch in batches:
            row = PartitionProduceData(
                index=batch.queue.partition, records=memoryview(self._build(batch))
            )
            topics.setdefault(batch.queue.topic, []).append(row)
        ids = {name: self._topic_id(name) for name in topics}
        if ZERO_UUID in ids.values():
            version = min(version, NAMES_PRODUCE_VERSION)
        request = ProduceRequest(
            acks=self._options.acks,
            timeout_ms=self._options.request_timeout_ms,
            topic_data=tuple(
                TopicProduceData(name=name, topic_id=ids[name], partition_data=tuple(rows))
                for name, rows in topics.items()
            ),
        )
        correlation_id = connection.next_correlation_id()
        frame = encode_request(request, version, correlation_id, connection.client_id)
        if self._options.acks == 0:
            self._send_unanswered(connection, frame, batches)
            return
        self._in_flight[node_id] = self._in_flight.get(node_id, 0) + 1
        future = connection.post(frame)
        timeout_s = self._options.request_timeout_ms / 1000
        timer = asyncio.get_running_loop().call_later(
            timeout_s, connection.fail, f"no reply to Produce within {timeout_s} s"
        )
        future.add_done_callback(
            partial(self._on_reply, node_id, connection, batches, version, correlation_id, timer)
        )

    def _topic_id(self, name: str) -> UUID:
        topic = self._cluster.cache.topics.get(name)
        return ZERO_UUID if topic is None else topic.topic_id

    def _send_unanswered(self, connection: Connection, frame: bytes, batches: list[Batch]) -> None:
        try:
            connection.post_without_reply(frame)
        except ConnectionError as e:
            self._all_failed(batches, e)
            return
        with self._lock:
            for batch in batches:
                batch.queue.succeeded(batch)
        self._finish(batches)

    def _on_reply(
        self,
        node_id: int,
        connection: Connection,
        batches: list[Batch],
        version: int,
        correlation_id: int,
        timer: asyncio.TimerHandle,
        future: asyncio.Future[memoryview],
    ) -> None:
        timer.cancel()
        self._in_flight[node_id] -= 1
        if future.cancelled():
            return
        error = future.exception()
        try:
            if error is not None:
                raise error
            reply = decode_response(ProduceResponse, version, future.result(), correlation_id)
            connection.hold(reply)
            self._take_reply(batches, reply)
        except (OSError, SchemaError, ValueError) as e:
            self._need_metadata()
            self._all_failed(batches, e)
        self.drain()

    def _take_reply(self, batches: list[Batch], reply: ProduceResponse) -> None:
        answers: dict[tuple[str, int], PartitionProduceResponse] = {}
        names = self._cluster.cache.names
        for topic in reply.responses:
            name = topic.name or names.get(topic.topic_id, "")
            for row in topic.partition_responses:
                answers[name, row.index] = row
        for endpoint in reply.node_endpoints:
            self._cluster.cache.add_broker(
                Broker(endpoint.node_id, endpoint.host, endpoint.port, endpoint.rack)
            )
        finished: list[Batch] = []
        for batch in batches:
            queue = batch.queue
            answer = answers.get((queue.topic, queue.partition))
            if answer is None:
                error: Exception = ConnectionError("the reply does not name the partition")
                finished += self._one_failed(batch, error)
            elif answer.error_code:
                finished += self._refused(batch, answer)
            else:
                batch.base_offset = answer.base_offset
                batch.append_time = answer.log_append_time_ms
                with self._lock:
                    queue.succeeded(batch)
                finished.append(batch)
        self._finish(finished)

    def _refused(self, batch: Batch, answer: PartitionProduceResponse) -> list[Batch]:
        queue = batch.queue
        told = answer.current_leader
        if not self._cluster.cache.move_leader(
            queue.topic, queue.partition, told.leader_id, told.leader_epoch
        ):
            self._need_metadata()
        detail = answer.error_message or f"produce to {queue.topic}-{queue.partition}"
        return self._one_failed(batch, kafka_error(answer.error_code, detail))

    def _one_failed(self, batch: Batch, error: Exception) -> list[Batch]:
        with self._lock:
            verdict = batch.queue.failed(
                batch,
                error,
                self._clock.monotonic(),
                retry_until=batch.created + self._options.delivery_timeout_s,
                backoff_s=self._cluster.backoff_s(batch.attempts - 1),
            )
        if verdict is Verdict.RETRY:
            return []
        if verdict is Verdict.FAIL:
            batch.error = error
            if not isinstance(error, KafkaError):
                text = f"not delivered within {self._options.delivery_timeout_s} s: {error}"
                batch.error = KafkaTimeoutError(text)
        return [batch]

    def _all_failed(self, batches: list[Batch], error: Exception) -> None:
        finished = [done for batch in batches for done in self._one_failed(batch, error)]
        self._finish(finished)

    def _finish(self, batches: list[Batch]) -> None:
        if batches:
            self._on_finished(batches)
            self._completion.finish(batches)

    def fail_everything(self, error: Exception) -> None:
        """Fail all that waits; for close and fatal errors."""
        finished: list[Batch] = []
        with self._lock:
            for queue in self.queues.values():
                finished += queue.expire(float("inf"))
        for batch in finished:
            batch.error = error
        self._finish(finished)

    def _need_metadata(self) -> None:
        if not self._refreshing:
            self._refreshing = True
            self._spawn(self._refresh())

    async def _refresh(self) -> None:
        attempt = 0
        try:
            while True:
                topics = {topic for topic, _ in self.queues}
                try:
                    await self._cluster.refresh(topics)
                    break
                except KafkaError:
                    await asyncio.sleep(self._cluster.backoff_s(attempt))
                    attempt += 1
            await asyncio.sleep(self._cluster.options.retry_backoff_ms / 1000)
        finally:
            self._refreshing = False
        self.drain()

    async def _refresh_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._cluster.options.metadata_max_age_ms / 1000)
            self._need_metadata()

    async def _expire_for_ever(self) -> None:
        limit = self._options.delivery_timeout_s
        while True:
            await asyncio.sleep(min(EXPIRY_TICK_S, limit / 4))
            before = self._clock.monotonic() - limit
            with self._lock:
                old = [b for queue in self.queues.values() for b in queue.expire(before)]
            for batch in old:
                where = f"{batch.queue.topic}-{batch.queue.partition}"
                text = f"{batch.count} records for {where} not delivered within {limit} s"
                batch.error = KafkaTimeoutError(text)
            self._finish(old)

    def _need_producer_id(self, *, anew: bool = False) -> None:
        if self._fatal is not None:
            self.fail_everything(self._fatal)
        elif not self._initialising and (anew or self._producer_id < 0):
            self._initialising = True
            self._spawn(self._init_producer())

    async def _init_producer(self) -> None:
        request = InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS
        )

        async def attempt() -> InitProducerIdResponse:
            node = await self._cluster.any_node()
            reply = await self._cluster.call(node, request, InitProducerIdResponse)
            if reply.error_code:
                raise kafka_error(reply.error_code, "a producer id for idempotence")
            return reply

        try:
            timeout_ms = int(self._options.delivery_timeout_s * 1000)
            reply = await self._cluster.retrying("init producer id", attempt, timeout_ms)
            self._producer_id, self._producer_epoch = reply.producer_id, reply.producer_epoch
        except KafkaError as e:
            if e.code in (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.CLUSTER_AUTHORIZATION_FAILED):
                self._fatal = e
            self.fail_everything(e)
        finally:
            self._initialising = False
        self.drain()
