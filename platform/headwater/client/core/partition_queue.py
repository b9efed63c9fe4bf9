"""A producer's batches of one partition: waiting, due by linger, in flight, to be retried. Pure.

Order and exactly-once (KIP-98, KIP-360):
- A batch is numbered when it is first sent and keeps its sequence through retries.
- After a failure nothing new is sent until every batch in flight has been answered. Then the failed
  batches are sent again, oldest first, one at a time.
- OUT_OF_ORDER_SEQUENCE_NUMBER for a batch after an unfinished one only follows from that one's
  failure: the batch is retried. For the oldest batch it means that the broker's producer state and
  this one differ: the next epoch begins, and what is left is numbered from 0. The broker did not
  append that batch, so nothing is written twice.
- A batch that is given up leaves a hole in the sequence. If batches follow it, their replies show
  whether it was appended; if none does, the next batch begins a new epoch.
- A batch of several records that is too large for the broker is split; its parts take its place and
  its sequences.
- A transactional producer's epochs come from the coordinator alone: what would begin a new epoch
  here fails the batch, and with it the transaction. After its end the coordinator gives a new one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from enum import Enum, auto
from typing import Protocol

from headwater.errors import ErrorCode, KafkaError
from headwater.records.columns import BatchColumns

IN_FLIGHT_MAX = 5
"""The broker remembers five batches per producer and partition (KIP-98)."""
EPOCH_MAX = 32767
SEQUENCE_MODULUS = 1 << 31
NO_SEQUENCE = -1
TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})


class Completion(Protocol):
    """Waits for batches and calls back (`headwater.client.futures.BatchCompletion`)."""

    def wait(self, batches: list[ProducerBatch], timeout_s: float | None) -> bool:
        """True once all are done; False when the time is up."""
        ...

    def add_callback(self, batch: ProducerBatch, callback: Callable[[], None]) -> bool:
        """Call `callback` when the batch is done. False if it is done already."""
        ...


class ProducerBatch:
    """Records for one partition. `columns` holds them until the batch is built, then `data`."""

    __slots__ = (
        "append_time",
        "attempts",
        "base_offset",
        "bytes_held",
        "callbacks",
        "columns",
        "completion",
        "count",
        "created",
        "data",
        "error",
        "is_done",
        "parent",
        "parts",
        "parts_left",
        "producer_epoch",
        "producer_id",
        "queue",
        "reserved_bytes",
        "sequence",
    )

    def __init__(self, queue: PartitionQueue, completion: Completion, created: float) -> None:
        self.queue = queue
        self.completion = completion
        self.created = created
        """Monotonic seconds."""
        self.columns: BatchColumns | None = None
        self.data: bytearray | None = None
        self.count = 0
        self.bytes_held = 0
        """An upper bound of the records' size before compression."""
        self.reserved_bytes = 0
        """How much of buffer_memory the batch occupies."""
        self.attempts = 0
        self.sequence = NO_SEQUENCE
        self.producer_id = -1
        self.producer_epoch = -1
        self.is_done = False
        self.error: Exception | None = None
        self.base_offset = -1
        self.append_time = -1
        self.callbacks: list[Callable[[], None]] | None = None
        self.parent: ProducerBatch | None = None
        """The batch that was split into this one and others."""
        self.parts: list[ProducerBatch] = []
        self.parts_left = 0

    def leaves(self) -> Iterator[ProducerBatch]:
        """The batches that were sent in the end: itself, or the parts that it was split into."""
        if not self.parts:
            yield self
        for part in self.parts:
            yield from part.leaves()

    def locate(self, index: int) -> tuple[ProducerBatch, int]:
        """The batch that record `index` was sent in, and its index there."""
        batch = self
        while batch.parts:
            for part in batch.parts:
                if index < part.count:
                    batch = part
                    break
                index -= part.count
        return batch, index


class FailureAction(Enum):
    """What follows from a failed attempt to send a batch."""

    RETRY = auto()
    SPLIT = auto()
    FAIL = auto()
    SUCCEED = auto()


class LentBatch(Enum):
    """What became of a batch that was lent to a waiting thread."""

    NOT_LENT = auto()
    """It came back before, or its time is up: nothing is left to do."""
    WAITING = auto()
    """The thread did not take it: it waits in the queue as before."""
    IN_FLIGHT = auto()
    """It may have been sent, and there is no response."""
    ACKNOWLEDGED = auto()
    """The broker acknowledged it."""


class PartitionQueue:
    """The batches of one partition, in order. The accumulator's lock guards it."""

    __slots__ = (
        "_unfinished",
        "in_flight",
        "is_idempotent",
        "is_transactional",
        "last_error",
        "leader_id",
        "lent",
        "missing_since",
        "needs_reset",
        "next_sequence",
        "not_before",
        "open",
        "partition",
        "producer_epoch",
        "producer_id",
        "retry",
        "sealed",
        "topic",
    )

    def __init__(
        self, topic: str, partition: int, *, is_idempotent: bool, is_transactional: bool = False
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.is_idempotent = is_idempotent
        self.is_transactional = is_transactional
        self.open: ProducerBatch | None = None
        """The batch that records are added to."""
        self.sealed: deque[ProducerBatch] = deque()
        self.retry: list[ProducerBatch] = []
        self.in_flight = 0
        self.leader_id = -1
        """The node that the batches in flight were sent to."""
        self.lent: ProducerBatch | None = None
        """A batch that a waiting thread sends itself: the sender sends nothing meanwhile. Who sets
        it to None has settled the batch: the thread as its last step, or the loop."""
        self.not_before = 0.0
        """Monotonic seconds: no retry before."""
        self.producer_id = -1
        self.producer_epoch = -1
        self.next_sequence = 0
        self.needs_reset = False
        """A batch was given up after it was numbered: the next one needs a new epoch."""
        self.last_error: Exception | None = None
        """The last retriable error, until a batch succeeds."""
        self.missing_since: float | None = None
        """Since when the topic exists without this partition: it was created again, smaller."""
        self._unfinished: deque[ProducerBatch] = deque()
        """Batches that were sent at least once, oldest first."""

    @property
    def is_idle(self) -> bool:
        """True while nothing waits and nothing is in flight."""
        return not (self.open or self.sealed or self.retry or self.in_flight)

    def waiting_since(self, now: float, linger_s: float) -> float | None:
        """Since when a batch could have been acknowledged (monotonic s); None without such a batch.

        The open batch waits from the end of its linger time on.
        """
        if self._unfinished:
            return self._unfinished[0].created
        if self.sealed:
            return self.sealed[0].created
        if self.open is None or self.open.created + linger_s > now:
            return None
        return self.open.created + linger_s

    def seal(self) -> None:
        """Close the open batch: the next drain sends it."""
        batch = self.open
        if batch is not None:
            self.open = None
            self.sealed.append(batch)

    def due_at(self, linger_s: float) -> float | None:
        """When a batch may be sent; None while only replies can change that."""
        if self.lent is not None:
            return None
        if self.retry:
            return None if self.in_flight else self.not_before
        if self.in_flight >= IN_FLIGHT_MAX or (self.needs_reset and self.in_flight):
            return None
        if self.sealed:
            return 0.0
        return None if self.open is None else self.open.created + linger_s

    @property
    def is_backing_off(self) -> bool:
        """True while a batch waits for `not_before`, to be sent again."""
        return bool(self.retry) and not self.in_flight and self.lent is None

    @property
    def next_size(self) -> int:
        """The bytes that the next batch to be sent holds; 0 without one."""
        waiting = self.retry or self.sealed
        head = waiting[0] if waiting else self.open
        return 0 if head is None else head.bytes_held

    @property
    def is_calm(self) -> bool:
        """True when nothing is in flight, to be sent again or to be numbered anew: the open batch,
        if there is one, is sent next."""
        return not (self.in_flight or self.retry or self.sealed or self.needs_reset or self.lent)

    def may_go_to(self, node_id: int) -> bool:
        """False while batches are in flight to the former leader: at the new leader their
        successors would be out of order."""
        return self.in_flight == 0 or self.leader_id == node_id or not self.is_idempotent

    def next_batch(self, producer_id: int, producer_epoch: int) -> ProducerBatch:
        """Remove the next batch to send and number it. Call it only when `due_at` says so."""
        if self.retry:
            if self.needs_reset:
                self._start_epoch(producer_id, producer_epoch)
            batch = self.retry.pop(0)
        else:
            if not self.sealed:
                self.seal()
            batch = self.sealed.popleft()
        if self.is_idempotent and batch.sequence == NO_SEQUENCE:
            self._number(batch, producer_id, producer_epoch)
        if batch.attempts == 0:
            self._unfinished.append(batch)
        batch.attempts += 1
        self.in_flight += 1
        return batch

    def _number(self, batch: ProducerBatch, producer_id: int, producer_epoch: int) -> None:
        is_new_producer = self.producer_id != producer_id or (
            self.is_transactional and self.producer_epoch != producer_epoch
        )
        if (is_new_producer or self.needs_reset) and self.in_flight == 0:
            self._start_epoch(producer_id, producer_epoch)
        batch.producer_id, batch.producer_epoch = self.producer_id, self.producer_epoch
        batch.sequence = self.next_sequence
        self.next_sequence = (self.next_sequence + batch.count) % SEQUENCE_MODULUS

    def _start_epoch(self, producer_id: int, producer_epoch: int) -> None:
        """Number from 0 again: with a new producer id and its epoch, else with the next epoch."""
        self.next_sequence = 0
        if self.producer_id != producer_id or self.is_transactional:
            # The id last: a waiting thread that is interrupted before leaves the epoch unbegun.
            self.producer_epoch = producer_epoch
            self.producer_id = producer_id
        else:
            self.producer_epoch += 1
        self.needs_reset = False
        for batch in self.retry:
            batch.sequence = NO_SEQUENCE

    @property
    def wants_new_producer(self) -> bool:
        """True when this producer id has no epoch left."""
        is_used_up = self.needs_reset and self.producer_epoch >= EPOCH_MAX
        return is_used_up and not self.is_transactional

    def succeeded(self, batch: ProducerBatch) -> None:
        """The broker acknowledged the batch."""
        self.in_flight -= 1
        self.last_error = None
        self._unfinished.remove(batch)

    def take_back(self, batch: ProducerBatch) -> LentBatch:
        """End the loan of a batch whose thread was interrupted, between any two of its steps.

        A batch is lent only when nothing else of the partition is in flight, sealed or to be sent
        again, and nothing is numbered meanwhile. So one look at the batch shows how far the thread
        came, and the queue's state follows from that.
        """
        if self.lent is not batch:
            return LentBatch.NOT_LENT
        self.lent = None
        if batch.base_offset >= 0:
            self.in_flight = 0
            self.last_error = None
            self._unfinished.clear()
            return LentBatch.ACKNOWLEDGED
        if batch.is_done:
            return LentBatch.NOT_LENT  # it waited in the queue, and expired
        if batch is self.open or batch in self.sealed:
            return LentBatch.WAITING
        if batch not in self._unfinished:
            self._unfinished.append(batch)
        batch.attempts = self.in_flight = 1
        if batch.sequence != NO_SEQUENCE:
            self.next_sequence = (batch.sequence + batch.count) % SEQUENCE_MODULUS
        return LentBatch.IN_FLIGHT

    def failed(
        self,
        batch: ProducerBatch,
        error: Exception,
        now: float,
        *,
        retry_until: float,
        backoff_s: float,
    ) -> FailureAction:
        """The broker answered with an error, or not at all (OSError).

        RETRY: the batch is queued again. SPLIT: the caller calls `replace` with its parts. FAIL and
        SUCCEED: the batch is finished.
        """
        code = error.code if isinstance(error, KafkaError) else ErrorCode.NETWORK_EXCEPTION
        self.in_flight -= 1
        if code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            self._unfinished.remove(batch)
            return FailureAction.SUCCEED
        if code in TOO_LARGE and batch.count > 1 and now < retry_until:
            return FailureAction.SPLIT
        is_oldest = self._unfinished[0] is batch
        if self._is_curable(code, is_oldest=is_oldest) and now + backoff_s < retry_until:
            self.last_error = error
            self.not_before = now + backoff_s
            self._retry([batch])
            return FailureAction.RETRY
        self.give_up(batch)
        return FailureAction.FAIL

    def _retry(self, batches: list[ProducerBatch]) -> None:
        self.retry += batches
        self.retry.sort(key=self._unfinished.index)

    def replace(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """`parts` take the place of the unfinished `batch`, and its sequences in order."""
        at = self._unfinished.index(batch)
        del self._unfinished[at]
        sequence = batch.sequence
        for part in reversed(parts):
            self._unfinished.insert(at, part)
        for part in parts:
            part.producer_id, part.producer_epoch = batch.producer_id, batch.producer_epoch
            part.attempts = batch.attempts
            part.sequence = sequence
            if sequence != NO_SEQUENCE:
                sequence = (sequence + part.count) % SEQUENCE_MODULUS
        self._retry(parts)

    def _is_curable(self, code: ErrorCode, *, is_oldest: bool) -> bool:
        lost_state = (
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            ErrorCode.UNKNOWN_PRODUCER_ID,
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        )
        if self.is_transactional and (
            code in lost_state or code == ErrorCode.INVALID_PRODUCER_EPOCH
        ):
            # Not of the oldest batch: it follows from that one's failure.
            return code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and not is_oldest
        if self.is_idempotent and code in lost_state:
            self.needs_reset = self.needs_reset or is_oldest
            return True
        if self.is_idempotent and code == ErrorCode.INVALID_PRODUCER_EPOCH and is_oldest:
            self.needs_reset = True
            return True
        return code.retriable or code == ErrorCode.BROKER_NOT_AVAILABLE

    def give_up(self, batch: ProducerBatch) -> None:
        """Forget a batch that failed for good or expired."""
        if batch in self._unfinished:
            self._unfinished.remove(batch)
            is_last = self.is_transactional or not self._unfinished
            if batch.sequence != NO_SEQUENCE and is_last:
                self.needs_reset = True

    def expire(self, created_before: float) -> list[ProducerBatch]:
        """Remove the waiting batches created before (monotonic s). Batches in flight stay."""
        old: list[ProducerBatch] = []
        for batch in [*self.retry, *self.sealed, *([self.open] if self.open else [])]:
            if batch.created < created_before:
                old.append(batch)
        for batch in old:
            if batch in self.retry:
                self.retry.remove(batch)
            elif batch in self.sealed:
                self.sealed.remove(batch)
            else:
                self.open = None
            self.give_up(batch)
        return old
