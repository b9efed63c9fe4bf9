"""The producer's machine for one partition: batches waiting, in flight, to be repeated. Pure.

Order and exactness (KIP-98, KIP-360):
- A batch takes its sequence when it is first sent and keeps it through retries.
- After a failure nothing new is sent until every batch in flight is back; then the failed ones go
  again, oldest first, one at a time.
- OUT_OF_ORDER_SEQUENCE for a batch behind an unfinished one is only an echo of that one's failure:
  repeat. For the oldest one it means that the broker's state and ours have parted: take the next
  epoch, number what is left from 0. That batch was surely not appended, so nothing is doubled.
- A batch that is given up leaves a hole: with others behind it their replies tell whether it was
  appended; with none behind it the next batch starts a new epoch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum, auto

from headwater.errors import ErrorCode, KafkaError
from headwater.records.builder import BatchBuilder

IN_FLIGHT_MAX = 5
"""The broker remembers five batches per producer and partition (KIP-98)."""
EPOCH_MAX = 32767
SEQUENCE_MODULUS = 1 << 31
NO_SEQUENCE = -1

Done = Callable[["Batch"], None]


class Batch:
    """Records on their way to one partition. `data` is set once built; `builder` before."""

    __slots__ = (
        "append_time",
        "attempts",
        "base_offset",
        "builder",
        "bytes_held",
        "callbacks",
        "count",
        "created",
        "data",
        "error",
        "is_done",
        "owner",
        "producer_epoch",
        "producer_id",
        "queue",
        "sequence",
    )

    def __init__(self, queue: PartitionQueue, owner: object, created: float) -> None:
        self.queue = queue
        self.owner = owner
        self.created = created
        self.builder: BatchBuilder | None = None
        self.data: bytearray | None = None
        self.count = 0
        self.bytes_held = 0
        self.attempts = 0
        self.sequence = NO_SEQUENCE
        self.producer_id = -1
        self.producer_epoch = -1
        self.is_done = False
        self.error: Exception | None = None
        self.base_offset = -1
        self.append_time = -1
        self.callbacks: list[Callable[[], None]] | None = None


class Verdict(Enum):
    """What a failed batch comes to."""

    RETRY = auto()
    FAIL = auto()
    SUCCESS = auto()


class PartitionQueue:
    """Batches of one partition, in order. The caller guards it with its lock."""

    __slots__ = (
        "_unfinished",
        "in_flight",
        "is_idempotent",
        "leader_id",
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

    def __init__(self, topic: str, partition: int, *, is_idempotent: bool) -> None:
        self.topic = topic
        self.partition = partition
        self.is_idempotent = is_idempotent
        self.open: Batch | None = None
        self.sealed: deque[Batch] = deque()
        self.retry: list[Batch] = []
        self.in_flight = 0
        self.leader_id = -1
        """The node that the batches in flight went to."""
        self.not_before = 0.0
        self.producer_id = -1
        self.producer_epoch = -1
        self.next_sequence = 0
        self.needs_reset = False
        self._unfinished: deque[Batch] = deque()

    @property
    def is_idle(self) -> bool:
        """Nothing waits and nothing is in flight."""
        return not (self.open or self.sealed or self.retry or self.in_flight)

    def seal(self) -> None:
        """Close the open batch: it goes out with the next drain."""
        batch = self.open
        if batch is not None:
            self.open = None
            self.sealed.append(batch)

    def due_at(self, linger_s: float) -> float | None:
        """When something may be sent; None while only replies can change that."""
        if self.retry:
            return None if self.in_flight else self.not_before
        if self.in_flight >= IN_FLIGHT_MAX or (self.needs_reset and self.in_flight):
            return None
        if self.sealed:
            return 0.0
        return None if self.open is None else self.open.created + linger_s

    def may_go_to(self, node_id: int) -> bool:
        """False while batches are in flight to a former leader: to the new one their successors
        would be out of order."""
        return self.in_flight == 0 or self.leader_id == node_id or not self.is_idempotent

    def take(self, producer_id: int, producer_epoch: int) -> Batch:
        """The next batch to send; the caller saw that one is due."""
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

    def _number(self, batch: Batch, producer_id: int, producer_epoch: int) -> None:
        is_new_producer = self.producer_id != producer_id
        if (is_new_producer or self.needs_reset) and self.in_flight == 0:
            self._start_epoch(producer_id, producer_epoch)
        batch.producer_id, batch.producer_epoch = self.producer_id, self.producer_epoch
        batch.sequence = self.next_sequence
        self.next_sequence = (self.next_sequence + batch.count) % SEQUENCE_MODULUS

    def _start_epoch(self, producer_id: int, producer_epoch: int) -> None:
        """Number from 0 again: under a new producer id as given, else under our next epoch."""
        if self.producer_id != producer_id:
            self.producer_id, self.producer_epoch = producer_id, producer_epoch
        else:
            self.producer_epoch += 1
        self.next_sequence = 0
        self.needs_reset = False
        for batch in self.retry:
            batch.sequence = NO_SEQUENCE

    @property
    def wants_new_producer(self) -> bool:
        """True when the epochs of this producer id are used up."""
        return self.needs_reset and self.producer_epoch >= EPOCH_MAX

    def succeeded(self, batch: Batch) -> None:
        """The broker has it."""
        self.in_flight -= 1
        self._unfinished.remove(batch)

    def failed(
        self, batch: Batch, error: Exception, now: float, *, retry_until: float, backoff_s: float
    ) -> Verdict:
        """A reply with an error, or none at all (OSError). Decides, and queues a retry."""
        code = error.code if isinstance(error, KafkaError) else ErrorCode.NETWORK_EXCEPTION
        self.in_flight -= 1
        if code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            self._unfinished.remove(batch)
            return Verdict.SUCCESS
        is_oldest = self._unfinished[0] is batch
        if self._is_curable(code, is_oldest=is_oldest) and now + backoff_s < retry_until:
            self.not_before = now + backoff_s
            self.retry.append(batch)
            self.retry.sort(key=self._unfinished.index)
            return Verdict.RETRY
        self.give_up(batch)
        return Verdict.FAIL

    def _is_curable(self, code: ErrorCode, *, is_oldest: bool) -> bool:
        lost_state = (
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            ErrorCode.UNKNOWN_PRODUCER_ID,
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        )
        if self.is_idempotent and code in lost_state:
            self.needs_reset = self.needs_reset or is_oldest
            return True
        if self.is_idempotent and code == ErrorCode.INVALID_PRODUCER_EPOCH and is_oldest:
            self.needs_reset = True
            return True
        return code.retriable or code == ErrorCode.BROKER_NOT_AVAILABLE

    def give_up(self, batch: Batch) -> None:
        """Forget a batch that failed for good or whose time is up."""
        if batch in self._unfinished:
            self._unfinished.remove(batch)
            if batch.sequence != NO_SEQUENCE and not self._unfinished:
                self.needs_reset = True

    def expire(self, created_before: float) -> list[Batch]:
        """Take out waiting batches that are too old; those in flight are not touched."""
        old: list[Batch] = []
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
