"""The short way of a blocking producer: a thread that waits for its only batch sends it itself.

Kafka's producers hand each batch to a sender thread. `send(...).result()`, or `flush()` after one
record, then costs two changes of thread and several turns of a loop. A producer whose threads wait
like that again and again gets a connection of its own to each leader for it: the waiting thread
takes the batch, writes the request and reads the response, in two system calls.

It takes what is simple: the only unfinished batch, of an idempotent producer without transactions,
with nothing in flight, known leader and producer id. While the queue has a batch `lent`, the sender
sends nothing of that partition, so that order and sequences are the sender's as before. A plain
acknowledgement is applied here; everything else, an error, a lost connection, a time limit, an
interrupt, goes back to the sender, which sends the batch again under its sequence (KIP-98: the
broker writes it once) or applies the response.

A batch is the thread's while the queue has it `lent`; to end the loan is the thread's last step. A
thread that was interrupted before, wherever, tells the loop. The loop alone decides then, by one
look at the batch (`PartitionQueue.take_back`), what is left to do.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from headwater.client.blocking.connection import BlockingConnection
from headwater.client.core.lone_produce import LoneProduce
from headwater.client.core.metadata import TopicMetadata
from headwater.client.core.partition_queue import PartitionQueue, ProducerBatch
from headwater.client.errors import ClosedError
from headwater.client.futures import BatchCompletion
from headwater.client.produce_requests import NAMES_PRODUCE_VERSION, built_batch
from headwater.client.producer_engine import ProducerEngine
from headwater.client.sender_counters import SenderCounters
from headwater.client.values import Broker
from headwater.errors import HeadwaterError
from headwater.wire.apis.k00_produce import ProduceRequest
from headwater.wire.primitives import ZERO_UUID

WAITS_BEFORE = 5
"""After so many waits for a lone batch, each soon after the one before, a connection is opened."""
SOON_S = 1.0
PATIENCE_MIN_S = 1.0
"""A thread with less time leaves its batch to the sender, which goes on when the time is up."""
TICK_S = 0.002
"""While waits follow each other within this time, the sender is not woken for a new batch. It looks
itself as often: a record that nobody waits for after all leaves after two ticks at the latest."""
IDLE_S = 60.0
"""Connections that no thread has used for so long are closed."""
CLOSE_TIMEOUT_S = 1.0

log = logging.getLogger("headwater.client.producer")


class _Way(NamedTuple):
    """How the batches of one partition are sent, while its leader and its metadata are these."""

    connection: BlockingConnection
    topic: TopicMetadata
    produce: LoneProduce


class LoneSends:
    """Sends the batches that threads wait for."""

    def __init__(self, engine: ProducerEngine[Any], completion: BatchCompletion) -> None:
        options = engine.options
        self.counters = SenderCounters()
        """Written by the thread whose turn it is."""
        self._engine = engine
        self._options = options
        self._cluster = engine.cluster
        self._accumulator = engine.accumulator
        self._lock = engine.accumulator.lock
        self._completion = completion
        self._sender = engine.sender
        self._clock_s = engine.clock.monotonic
        self._compression = options.compression
        self._linger_s = options.linger_ms / 1000
        self._request_timeout_s = options.request_timeout_ms / 1000
        self._is_possible = options.is_idempotent and options.transactional_id is None
        self._process = os.getpid()
        self.sends_to: int | None = None
        """The node that a request without a response was sent to."""
        self._turn = threading.Lock()
        """Held by the thread that sends."""
        self._waits = 0
        self._waited_at = 0.0
        self._exchanges = 0
        self._acknowledged_at = 0.0
        self._connections: dict[int, BlockingConnection] = {}
        """By node id."""
        self._opener: threading.Thread | None = None
        self._ways: dict[PartitionQueue, _Way] = {}
        self._timer: asyncio.TimerHandle | None = None

    # --- on the thread that waits -------------------------------------------------------------

    def send(self, batch: ProducerBatch, timeout_s: float | None) -> None:
        """A thread is about to wait for this batch, for so long: send it here and now, if that is
        simple. Otherwise see to it that the sender does."""
        if batch.is_done:
            return
        limit_s = self._request_timeout_s if timeout_s is None else timeout_s
        if self._is_possible and limit_s >= PATIENCE_MIN_S and self._turn.acquire(blocking=False):
            try:
                if self._is_sent(batch, min(limit_s, self._request_timeout_s)):
                    return
            finally:
                self._turn.release()
        if self._accumulator.is_wait_expected or self._accumulator.flushing:
            self._expect(waits=False)
            self._ask(self._sender.drain)

    def _is_sent(self, batch: ProducerBatch, limit_s: float) -> bool:
        """Send the batch; False when it cannot be taken."""
        queue = batch.queue
        try:
            way = self._take(queue, batch)
            if way is None:
                if (left := queue.lent) is not None:  # by a thread that was interrupted twice
                    lost = ConnectionError("the thread that sent was interrupted")
                    self._post(functools.partial(self._sender.returned, left, lost))
                return False
            self._exchange(batch, way, limit_s)
        except BaseException as error:
            self.sends_to = None
            was_taken = queue.lent is batch
            if was_taken:
                self._give_back(batch, error, limit_s)
            else:
                self._ask(self._sender.drain)
            if not isinstance(error, OSError | HeadwaterError | ValueError):
                raise
            return was_taken
        return True

    def _take(self, queue: PartitionQueue, batch: ProducerBatch) -> _Way | None:
        """Take the batch out of its queue, if it is alone and may be sent now."""
        sender, accumulator = self._sender, self._accumulator
        with self._lock:
            if queue.open is not batch or not queue.is_calm or not accumulator.is_alone(batch):
                return None
            lingers = self._linger_s and not accumulator.is_urgent
            if lingers and batch.created + self._linger_s > self._clock_s():
                return None
            if sender.producer_id < 0 or self._process != os.getpid():
                return None
            way = self._way(queue)
            if way is not None:
                queue.lent = batch
                queue.next_batch(sender.producer_id, sender.producer_epoch)
                accumulator.trim(batch)
        return way

    def _way(self, queue: PartitionQueue) -> _Way | None:
        """How to send to the queue's leader now."""
        cache = self._cluster.cache
        node_id = cache.leader(queue.topic, queue.partition)
        topic, broker = cache.topics.get(queue.topic), cache.brokers.get(node_id)
        if topic is None or broker is None:
            return None
        connection = self._connections.get(node_id)
        if connection is None or (connection.host, connection.port) != (broker.host, broker.port):
            self._note_wait(broker)
            return None
        if connection.is_authentication_due:  # that takes several rounds: not within a wait
            self._connections = {n: c for n, c in self._connections.items() if n != node_id}
            connection.close()
            return None
        senders = self._cluster.known_connection(node_id)
        if connection.throttled_s or (senders is not None and senders.throttled_s):
            return None
        queue.leader_id = node_id
        way = self._ways.get(queue)
        if way is None or way.connection is not connection or way.topic is not topic:
            produce = self._pattern(queue, connection, topic)
            if produce is None:
                return None
            way = self._ways[queue] = _Way(connection, topic, produce)
        return way

    def _pattern(
        self, queue: PartitionQueue, connection: BlockingConnection, topic: TopicMetadata
    ) -> LoneProduce | None:
        named = topic.topic_id == ZERO_UUID
        version = connection.version_for(ProduceRequest, NAMES_PRODUCE_VERSION if named else None)
        if version < ProduceRequest.flexible:
            self._is_possible = False
            return None
        return LoneProduce(
            queue.topic,
            topic.topic_id,
            queue.partition,
            version=version,
            client_id=self._options.client_id,
            acks=self._options.acks,
            timeout_ms=self._options.request_timeout_ms,
        )

    def _exchange(self, batch: ProducerBatch, way: _Way, limit_s: float) -> None:
        connection, topic, produce = way
        began = self._clock_s()
        data = built_batch(batch, self._compression, self._options.compression_level)
        number = connection.next_correlation_id()
        self.sends_to = batch.queue.leader_id
        response = connection.exchange(produce.request(number, data), limit_s)
        self.sends_to = None
        self._exchanges += 1
        self.counters.requests_sent += 1
        self.counters.responded(self._clock_s() - began)
        numbers = produce.acknowledged(response, number)
        if numbers is not None and numbers[0] >= 0:
            self._acknowledged(batch, *numbers)
            return
        reply = produce.decoded(response, number)
        connection.throttle(reply)
        names = {topic.topic_id: topic.name}
        self._post(functools.partial(self._sender.answered, batch, names, reply))

    def _acknowledged(self, batch: ProducerBatch, base_offset: int, append_time: int) -> None:
        queue = batch.queue
        self.counters.acknowledged(batch)
        batch.append_time = append_time
        batch.base_offset = base_offset  # interrupted from here on, the loop sends it no more
        with self._lock:
            queue.succeeded(batch)
            self._accumulator.settle(batch)
        self._completion.mark([batch])
        if batch.callbacks:
            self._post(functools.partial(self._completion.call_back, [batch]))
        queue.lent = None
        if not self._accumulator.is_finished:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._engine.wake_sender()
        now = self._clock_s()
        if not self._accumulator.is_wait_expected and now - self._acknowledged_at < TICK_S:
            self._ask(self._begin_ticks)
        self._acknowledged_at = now

    def _give_back(self, batch: ProducerBatch, error: BaseException, limit_s: float) -> None:
        """The sender sends it again: its connection is of no use any more."""
        if isinstance(error, BlockingIOError | TimeoutError):
            cause: OSError = ConnectionError(f"no response to Produce within {limit_s:g} s")
        elif isinstance(error, OSError):
            cause = error
        else:
            cause = ConnectionError(f"the thread that sent was interrupted: {error!r}")
        try:
            way = self._ways.pop(batch.queue, None)
            if way is not None:
                used = way.connection
                with self._lock:
                    others = {n: c for n, c in self._connections.items() if c is not used}
                    self._connections = others
                used.close()
        finally:
            self._post(functools.partial(self._sender.returned, batch, cause))

    def _post(self, callback: Callable[[], object]) -> None:
        """Settle a batch on the loop, or here when the loop has ended: nobody else would. Raises
        ClosedError when that is not possible any more."""
        try:
            self._engine.host.post(callback)
        except RuntimeError:
            try:
                callback()
            except RuntimeError:  # it needs the loop
                raise ClosedError("the producer was closed during the call") from None

    def _ask(self, work: Callable[[], object]) -> None:
        """Have the loop do what only a running loop needs."""
        with contextlib.suppress(RuntimeError):  # it has ended
            self._engine.host.post(work)

    def _expect(self, *, waits: bool) -> None:
        with self._lock:
            self._accumulator.is_wait_expected = waits

    def _note_wait(self, broker: Broker) -> None:
        """A thread waits for a lone batch, and there is no connection for it yet."""
        now = self._clock_s()
        self._waits = self._waits + 1 if now - self._waited_at < SOON_S else 1
        self._waited_at = now
        if self._waits > WAITS_BEFORE and self._opener is None:
            self._waits = 0
            name = f"{self._options.client_id or 'headwater-producer'}-connect"
            self._opener = threading.Thread(
                target=self._open, args=(broker,), name=name, daemon=True
            )
            self._opener.start()

    # --- on a thread of its own: connecting and authentication block --------------------------

    def _open(self, broker: Broker) -> None:
        try:
            connection = BlockingConnection(
                broker.host,
                broker.port,
                client_id=self._options.client_id,
                timeout_s=self._request_timeout_s,
                credentials=self._options.credentials,
            )
            self._add(broker.node_id, connection)
        except (OSError, HeadwaterError, ValueError) as error:
            log.debug("no connection to %s for threads that wait: %s", broker, error)
        finally:
            self._opener = None

    def _add(self, node_id: int, connection: BlockingConnection) -> None:
        with self._lock:
            if self._is_possible:
                former = self._connections.get(node_id)
                self._connections = {**self._connections, node_id: connection}
            else:
                former = connection
        if former is not None:  # the producer is closed, or the broker has another address now
            former.interrupt()
            former.close()
        self._ask(self._watch_idle)

    # --- on the engine's loop -----------------------------------------------------------------

    def _watch_idle(self) -> None:
        if self._timer is None and self._is_possible:
            self._again(IDLE_S, self._close_idle)

    def _again(self, delay_s: float, work: Callable[[int], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(delay_s, work, self._exchanges)

    def _begin_ticks(self) -> None:
        if self._is_possible:
            self._expect(waits=True)
            self._again(TICK_S, self._tick)

    def _tick(self, seen: int) -> None:
        if self._exchanges != seen:
            self._again(TICK_S, self._tick)
            return
        self._expect(waits=False)
        self._sender.drain()
        self._again(IDLE_S, self._close_idle)

    def _close_idle(self, seen: int) -> None:
        if self._exchanges != seen or not self._turn.acquire(blocking=False):
            self._again(IDLE_S, self._close_idle)
            return
        try:
            self._timer = None
            self._close_all()
        finally:
            self._turn.release()

    def _close_all(self) -> None:
        with self._lock:
            connections, self._connections = self._connections, {}
        self._ways.clear()
        for connection in connections.values():
            connection.close()

    def close(self) -> None:
        """Close the connections. A thread that waits for a response gives its batch back."""
        with self._lock:
            self._is_possible = False
        self._expect(waits=False)
        if (opener := self._opener) is not None:
            opener.join(CLOSE_TIMEOUT_S)
        if self._timer is not None:
            self._timer.cancel()
        for connection in self._connections.values():
            connection.interrupt()
        if self._turn.acquire(timeout=CLOSE_TIMEOUT_S):
            self._turn.release()
        self._close_all()
