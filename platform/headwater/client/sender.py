"""The producer's sending side, on its loop: queues to Produce requests, responses to outcomes.

A node is sent to only over an open connection and synchronously, so that the batches of a partition
leave in the order in which they were taken. At most `max_in_flight_requests_per_connection`
requests per node have no response. Whether a failed batch is sent again is the rule of
`client.core.partition_queue`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from uuid import UUID

from headwater.client.cluster import Cluster
from headwater.client.connection import Connection, Part
from headwater.client.coordinator_calls import soon_s
from headwater.client.core.batch_split import split_batch
from headwater.client.core.partition_queue import (
    FailureAction,
    LentBatch,
    PartitionQueue,
    ProducerBatch,
)
from headwater.client.delivery_timeout import DeliveryWatch, no_coordinator
from headwater.client.drain_timer import DrainTimer
from headwater.client.errors import kafka_error
from headwater.client.futures import BatchCompletion
from headwater.client.metadata_refresh import MetadataRefresh
from headwater.client.outages import OutageLog
from headwater.client.produce_requests import (
    NAMES_PRODUCE_VERSION,
    produce_request,
    request_parts,
    responses_by_partition,
)
from headwater.client.producer_options import ProducerOptions
from headwater.client.record_accumulator import RecordAccumulator
from headwater.client.sender_counters import SenderCounters
from headwater.client.transaction_manager import TransactionManager
from headwater.client.values import Broker, Outage
from headwater.errors import ErrorCode, KafkaError
from headwater.wire.apis.k00_produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
)
from headwater.wire.apis.k22_init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from headwater.wire.framing import decode_response
from headwater.wire.primitives import ZERO_UUID
from headwater.wire.schema import SchemaError

TRANSACTION_TIMEOUT_MS = 60_000


class Sender:
    """Everything of a producer that runs on the loop."""

    def __init__(
        self,
        cluster: Cluster,
        options: ProducerOptions,
        accumulator: RecordAccumulator,
        completion: BatchCompletion,
        outages: OutageLog,
        transactions: TransactionManager | None = None,
    ) -> None:
        self.wake_is_pending = False
        self.timer = DrainTimer(self.drain)
        self.counters = SenderCounters()
        self.in_flight: dict[int, int] = {}
        """Node id -> requests without a response."""
        self._cluster = cluster
        self._options = options
        self._accumulator = accumulator
        self._lock = accumulator.lock
        self._completion = completion
        self._compression = options.compression
        self._idempotent = options.is_idempotent
        self._transactions = transactions
        if transactions is not None:
            transactions.drain, transactions.fail_waiting = self.drain, self.fail_everything
        self.producer_id = -1
        self.producer_epoch = -1
        self._fatal: Exception | None = None
        """Why no record can ever be sent."""
        self._end: Exception | None = None
        """Why nothing is sent again: the producer has been closed."""
        self._connecting: set[int] = set()
        self._throttled: set[int] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._metadata = MetadataRefresh(
            cluster,
            accumulator,
            auto_create=options.allow_auto_create_topics,
            spawn=self._spawn,
            drain=self.drain,
        )
        self._initialising = False
        self._clock = cluster.clock
        self._watch = DeliveryWatch(
            cluster,
            accumulator,
            outages,
            delivery_timeout_s=options.delivery_timeout_ms / 1000,
            linger_s=options.linger_ms / 1000,
            finish=self._finish,
            note_coordinator=no_coordinator if transactions is None else transactions.note_outages,
        )

    def start(self) -> None:
        """Begin the periodic work. Call it on the loop."""
        self._spawn(self._watch.run())
        self._spawn(self._metadata.run_periodically())

    def waits(self, batches: list[ProducerBatch]) -> list[Outage]:
        """What these batches wait for, by partition. Any thread may ask."""
        return self._watch.waits(batches)

    def stop(self, error: Exception) -> None:
        """End the periodic work. What is in flight fails with this error from now on."""
        self._end = error
        self._metadata.end()
        for task in self._tasks:
            task.cancel()
        self.timer.stop()

    def _spawn(self, work: asyncio._CoroutineLike[None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def drain(self) -> None:
        """Send the batches that are due, and set a timer for the next one."""
        self.wake_is_pending = False
        if self._end is not None:
            return
        if self._transactions is not None:
            state = self._transactions.state
            self.producer_id, self.producer_epoch = state.producer_id, state.producer_epoch
        elif self._idempotent and self.producer_id < 0:
            self._request_producer_id()
            return
        now = self._clock.monotonic()
        linger_s = 0.0 if self._accumulator.is_urgent else self._options.linger_ms / 1000
        while True:
            by_node, next_due = self._collect(now, linger_s)
            for node_id, batches in by_node.items():
                self._send(node_id, batches)
            if not by_node:
                break
        if next_due is not None:
            self.timer.set(next_due, now)

    def _collect(
        self, now: float, linger_s: float
    ) -> tuple[dict[int, list[ProducerBatch]], float | None]:
        """By leader, one batch of each partition that is due; and when the next one is due."""
        by_node: dict[int, list[ProducerBatch]] = {}
        sizes: dict[int, int] = {}
        next_due: float | None = None
        with self._lock:
            for queue in self._accumulator.queues.values():
                due = queue.due_at(linger_s)
                if due is None:
                    continue
                if due > now and not self._metadata.has_new_leader(queue):
                    next_due = due if next_due is None else min(next_due, due)
                    continue
                if self._transactions is not None and not self._transactions.may_send(queue):
                    continue
                node_id = self._ready_node(queue)
                if node_id is None or not queue.may_go_to(node_id):
                    continue
                if queue.wants_new_producer and queue.producer_id == self.producer_id:
                    self._request_producer_id(replace=True)
                    continue
                size = queue.next_size
                if node_id in sizes and sizes[node_id] + size > self._options.max_request_size:
                    continue
                queue.leader_id = node_id
                batch = queue.next_batch(self.producer_id, self.producer_epoch)
                if batch.attempts == 1:
                    self._accumulator.trim(batch)
                by_node.setdefault(node_id, []).append(batch)
                sizes[node_id] = sizes.get(node_id, 0) + size
        return by_node, next_due

    def _ready_node(self, queue: PartitionQueue) -> int | None:
        """The leader if a request can be sent to it now. Otherwise None: what is missing, metadata
        or a connection, is requested."""
        node_id = self._cluster.cache.leader(queue.topic, queue.partition)
        if node_id not in self._cluster.cache.brokers:
            self._metadata.request()
            return None
        if self.in_flight.get(node_id, 0) >= self._options.max_in_flight_requests_per_connection:
            return None
        connection = self._cluster.known_connection(node_id)
        if connection is None:
            if node_id not in self._connecting:
                self._connecting.add(node_id)
                self._spawn(self._connect(node_id))
            return None
        if (throttled_s := connection.throttled_s) > 0:
            if node_id not in self._throttled:
                self._throttled.add(node_id)
                asyncio.get_running_loop().call_later(throttled_s, self._end_throttle, node_id)
            return None
        return node_id

    def _end_throttle(self, node_id: int) -> None:
        self._throttled.discard(node_id)
        self.drain()

    async def _connect(self, node_id: int) -> None:
        try:
            await self._cluster.connection(node_id)
        except (OSError, KafkaError):
            await asyncio.sleep(self._cluster.backoff_s(1))
            self._metadata.request()
        finally:
            self._connecting.discard(node_id)
        self.drain()

    def _send(self, node_id: int, batches: list[ProducerBatch]) -> None:
        connection = self._cluster.known_connection(node_id)
        if connection is None:
            self._all_failed(batches, ConnectionError("the connection was lost"))
            return
        version = connection.version_for(ProduceRequest)
        topic_ids = {b.queue.topic: self._topic_id(b.queue.topic) for b in batches}
        if ZERO_UUID in topic_ids.values():
            version = min(version, NAMES_PRODUCE_VERSION)
        if self._transactions is not None:
            try:
                version = self._transactions.produce_version(connection, version)
            except KafkaError as e:
                self._all_failed(batches, e)
                return
        request = produce_request(batches, self._options, self._compression, topic_ids)
        correlation_id = connection.next_correlation_id()
        parts = request_parts(request, version, correlation_id, connection.client_id)
        self.counters.requests_sent += 1
        if self._options.acks == 0:
            self._send_without_response(connection, parts, batches)
            return
        self.in_flight[node_id] = self.in_flight.get(node_id, 0) + 1
        future = connection.post(*parts)
        timeout_s = self._options.request_timeout_ms / 1000
        timer = asyncio.get_running_loop().call_later(
            timeout_s, connection.fail, f"no response to Produce within {timeout_s:g} s"
        )
        began = self._clock.monotonic()
        names = {topic_id: name for name, topic_id in topic_ids.items()}

        def decode(raw: memoryview) -> ProduceResponse:
            return decode_response(ProduceResponse, version, raw, correlation_id)

        def on_response(done: asyncio.Future[memoryview]) -> None:
            timer.cancel()
            self.in_flight[node_id] -= 1
            if not done.cancelled():
                self.counters.responded(self._clock.monotonic() - began)
                self._on_response(connection, batches, names, decode, done)

        future.add_done_callback(on_response)

    def _topic_id(self, name: str) -> UUID:
        topic = self._cluster.cache.topics.get(name)
        return ZERO_UUID if topic is None else topic.topic_id

    def _send_without_response(
        self, connection: Connection, parts: list[Part], batches: list[ProducerBatch]
    ) -> None:
        try:
            connection.post_without_reply(*parts)
        except ConnectionError as e:
            self._all_failed(batches, e)
            return
        with self._lock:
            for batch in batches:
                batch.queue.succeeded(batch)
        self._finish(batches)

    def _on_response(
        self,
        connection: Connection,
        batches: list[ProducerBatch],
        names: dict[UUID, str],
        decode: Callable[[memoryview], ProduceResponse],
        done: asyncio.Future[memoryview],
    ) -> None:
        error = done.exception()
        try:
            if error is not None:
                raise error
            response = decode(done.result())
            connection.throttle(response)
            self._apply(batches, names, response)
        except (OSError, SchemaError, ValueError) as e:
            if self._transactions is not None:
                self._transactions.on_lost_produce()
            self._metadata.request()
            self._all_failed(batches, e)
        self.drain()

    def answered(
        self, batch: ProducerBatch, names: dict[UUID, str], response: ProduceResponse
    ) -> None:
        """The response for a batch that was lent to a waiting thread."""
        if batch.queue.lent is not batch:
            return
        connection = self._cluster.known_connection(batch.queue.leader_id)
        if connection is not None:
            connection.throttle(response)
        batch.queue.lent = None
        self._apply([batch], names, response)
        self.drain()

    def returned(self, batch: ProducerBatch, error: Exception) -> None:
        """The thread that it was lent to has no response. After `answered` it changes nothing."""
        with self._lock:
            state = batch.queue.take_back(batch)
        if state is LentBatch.IN_FLIGHT:
            self._metadata.request()
            self._all_failed([batch], error)
        elif state is LentBatch.ACKNOWLEDGED:  # the thread has counted it
            self._completion.finish(self._accumulator.finished([batch]))
        self.drain()

    def _apply(
        self, batches: list[ProducerBatch], names: dict[UUID, str], response: ProduceResponse
    ) -> None:
        answers = responses_by_partition(response, names)
        for endpoint in response.node_endpoints:
            self._cluster.cache.add_broker(
                Broker(endpoint.node_id, endpoint.host, endpoint.port, endpoint.rack)
            )
        finished: list[ProducerBatch] = []
        for batch in batches:
            queue = batch.queue
            answer = answers.get((queue.topic, queue.partition))
            if answer is None:
                finished += self._one_failed(batch, ConnectionError("no answer for its partition"))
            elif answer.error_code:
                finished += self._refused(batch, answer)
            else:
                batch.base_offset = answer.base_offset
                batch.append_time = answer.log_append_time_ms
                with self._lock:
                    queue.succeeded(batch)
                finished.append(batch)
        self._finish(finished)

    def _refused(
        self, batch: ProducerBatch, answer: PartitionProduceResponse
    ) -> list[ProducerBatch]:
        queue = batch.queue
        leader = answer.current_leader
        if not self._cluster.cache.move_leader(
            queue.topic, queue.partition, leader.leader_id, leader.leader_epoch
        ):
            self._metadata.request()
        detail = answer.error_message or f"produce to {queue.topic}-{queue.partition}"
        return self._one_failed(batch, kafka_error(answer.error_code, detail))

    def _one_failed(self, batch: ProducerBatch, error: Exception) -> list[ProducerBatch]:
        """The batches that are finished by this failure."""
        with self._lock:
            action = batch.queue.failed(
                batch,
                error,
                self._clock.monotonic(),
                retry_until=self._retry_until(batch),
                backoff_s=self._backoff_s(batch, error),
            )
            if action is FailureAction.SPLIT:
                self.counters.batches_split += 1
                batch.queue.replace(batch, split_batch(batch))
                return []
        if action is FailureAction.RETRY:
            self.counters.batches_retried += 1
            return []
        if action is FailureAction.FAIL:
            is_answer = isinstance(error, KafkaError)
            late = error if is_answer else self._watch.timeout_error(batch, error)
            batch.error = self._end or late
        return [batch]

    def _retry_until(self, batch: ProducerBatch) -> float:
        if self._end is not None:
            return 0.0
        if self._transactions is not None and self._transactions.state.gives_up_batches:
            return 0.0
        return batch.created + self._options.delivery_timeout_ms / 1000

    def _backoff_s(self, batch: ProducerBatch, error: Exception) -> float:
        if getattr(error, "code", None) is ErrorCode.CONCURRENT_TRANSACTIONS:
            return soon_s(batch.attempts - 1)
        return self._cluster.backoff_s(batch.attempts - 1)

    def _all_failed(self, batches: list[ProducerBatch], error: Exception) -> None:
        self._finish([done for batch in batches for done in self._one_failed(batch, error)])

    def _finish(self, batches: list[ProducerBatch]) -> None:
        """Batches are acknowledged, or have failed with their `error`."""
        if not batches:
            return
        for batch in batches:
            if batch.error is None:
                self.counters.acknowledged(batch)
                continue
            self.counters.records_failed += batch.count
            if self._transactions is not None:
                self._transactions.on_failed(batch.error)
        self._completion.finish(self._accumulator.finished(batches))
        if self._transactions is not None:
            self._transactions.on_finished()

    def fail_everything(self, error: Exception) -> None:
        """Fail every batch that waits: the producer is closed, or an error is fatal."""
        finished: list[ProducerBatch] = []
        with self._lock:
            for queue in self._accumulator.queues.values():
                finished += queue.expire(float("inf"))
        for batch in finished:
            batch.error = error
        self._finish(finished)

    def _request_producer_id(self, *, replace: bool = False) -> None:
        if self._fatal is not None:
            self.fail_everything(self._fatal)
        elif not self._initialising and (replace or self.producer_id < 0):
            self._initialising = True
            self._spawn(self._init_producer_id())

    async def _init_producer_id(self) -> None:
        request = InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS
        )

        async def attempt() -> InitProducerIdResponse:
            try:
                node = await self._cluster.any_node()
                response = await self._cluster.call(node, request, InitProducerIdResponse)
                if response.error_code:
                    raise kafka_error(response.error_code, "InitProducerId, for idempotence")
            except (OSError, KafkaError) as e:
                self._watch.id_error = e
                raise
            return response

        try:
            timeout_ms = self._options.delivery_timeout_ms
            response = await self._cluster.retrying("init producer id", attempt, timeout_ms)
            self.producer_id, self.producer_epoch = response.producer_id, response.producer_epoch
            self._watch.id_error = None
        except KafkaError as e:
            if e.code in (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.CLUSTER_AUTHORIZATION_FAILED):
                self._fatal = e
            self.fail_everything(e)
        finally:
            self._initialising = False
        self.drain()
