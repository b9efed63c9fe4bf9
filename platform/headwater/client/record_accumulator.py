"""The producer's batches, from `send` to their acknowledgement, within `buffer_memory`.

A batch reserves its memory in steps, so that the bound holds and a record costs no accounting of
its own; `PartitionQueue.due_at` (`core.partition_queue`) tells when a batch is due (`linger`). A
caller that finds no room waits for up to `max_block_ms`; meanwhile batches are sent without
lingering. How callers wait is all in which the two kinds differ: threads wait in
`ThreadAccumulator`, tasks in `headwater.client.aio.task_accumulator`. The lock
guards the partitions' queues too.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from time import sleep

from headwater.client.core.partition_queue import PartitionQueue, ProducerBatch
from headwater.client.engine_host import EngineHost
from headwater.client.errors import BufferExhaustedError, ClosedError, MessageTooLargeError
from headwater.client.futures import BatchCompletion
from headwater.client.loop_thread import check_process
from headwater.client.outages import OutageLog, summary
from headwater.client.producer_options import ProducerOptions
from headwater.clock import Clock
from headwater.records.columns import BatchColumns

RESERVE_STEP_BYTES = 16 * 1024
YIELD_S = 0.00005
"""After sealing a batch the sending thread pauses for a moment: the loop then gets the interpreter
without waiting for the end of a switch interval."""


@dataclass(frozen=True, slots=True)
class AccumulatorParts:
    """What an accumulator is built from."""

    options: ProducerOptions
    clock: Clock
    completion: BatchCompletion
    host: EngineHost
    outages: OutageLog
    wake_sender: Callable[[], None]
    drains_by: Callable[[float], bool]
    """True when the sender looks by then (monotonic s) without being woken."""


class RecordAccumulator:
    """Queues, open batches and the memory that they occupy. `send` and the sender share it."""

    def __init__(self, parts: AccumulatorParts) -> None:
        self.lock = threading.Lock()
        self.queues: dict[tuple[str, int], PartitionQueue] = {}
        self.reserved_bytes = 0
        self.blocked_senders = 0
        """Threads or tasks in `send` that wait for room."""
        self.flushing = 0
        self.is_closed = False
        self.is_wait_expected = False
        """True while threads wait for each of their batches and send it themselves: the sender need
        not wake for a batch that has just been opened. Set with the lock held."""
        self.check_send: Callable[[], None] | None = None
        """Raises when no record may be added now: outside a transaction. It is called once per
        batch: a transaction's end seals every batch, so that the next record needs a new one."""
        self._process = os.getpid()
        self._options = parts.options
        self._clock = parts.clock
        self._completion = parts.completion
        self._host = parts.host
        self._outages = parts.outages
        self._wake_sender = parts.wake_sender
        self._drains_by = parts.drains_by
        self._linger_s = parts.options.linger_ms / 1000
        self._batch_bytes_max = parts.options.batch_bytes_max
        self._buffer_bytes_max = parts.options.buffer_memory
        self._size_max = min(parts.options.max_request_size, parts.options.buffer_memory)
        self._unfinished: dict[int, ProducerBatch] = {}
        """By identity: batches in the order of their creation."""

    @property
    def is_urgent(self) -> bool:
        """True while a caller waits for room or in `flush`: batches are sent without lingering."""
        return self.blocked_senders > 0 or self.flushing > 0

    def unfinished(self) -> list[ProducerBatch]:
        """The batches that are neither acknowledged nor failed, oldest first."""
        with self.lock:
            return list(self._unfinished.values())

    def add_queues(self, topic: str, count: int) -> list[PartitionQueue]:
        """The queues of partitions 0 to `count` - 1, new ones included."""
        idempotent = self._options.is_idempotent
        transactional = self._options.transactional_id is not None
        with self.lock:
            known = self.queues
            queues = [
                known.get((topic, p))
                or PartitionQueue(
                    topic, p, is_idempotent=idempotent, is_transactional=transactional
                )
                for p in range(count)
            ]
            # The sender iterates over the dict it sees: it is replaced, not changed.
            self.queues = {**known, **{(topic, q.partition): q for q in queues}}
        return queues

    def batch_for(self, queue: PartitionQueue, size: int) -> ProducerBatch:
        """The open batch of the queue, with room for a record of `size` bytes.

        Called and left with the lock held. Raises MessageTooLargeError, BufferExhaustedError,
        ClosedError.
        """
        self._check_size(size, "a record of about")
        yielded = False
        while True:
            self._check_open()
            batch = queue.open
            is_full = batch is not None and batch.bytes_held + size > self._batch_bytes_max
            if batch is not None and batch.count and is_full:
                queue.seal()
                self.trim(batch)
                self._wake_sender()
                if not yielded:
                    yielded = True
                    self._pause()
                continue
            held = 0 if batch is None else batch.bytes_held
            reserved = 0 if batch is None else batch.reserved_bytes
            if held + size <= reserved and batch is not None:
                return batch
            if self.reserved_bytes + held + size - reserved > self._buffer_bytes_max:
                self._wait_for_room(held + size - reserved)
                continue  # the batch may have been sent meanwhile
            if batch is None:
                batch = self._open(queue)
            self._reserve(batch, held + size)

    def _check_open(self) -> None:
        """Called once per batch."""
        check_process(self._process)
        if self.is_closed:
            raise ClosedError("the producer is closed")
        if self.check_send is not None:
            self.check_send()

    @property
    def is_finished(self) -> bool:
        """True when every batch is acknowledged or has failed."""
        return not self._unfinished

    def is_alone(self, batch: ProducerBatch) -> bool:
        """True when no other batch is unfinished. Called with the lock held."""
        return len(self._unfinished) == 1 and id(batch) in self._unfinished

    def seal_all(self) -> None:
        """Close every open batch. Called with the lock held."""
        for queue in self.queues.values():
            queue.seal()

    def _pause(self) -> None:
        """A batch was sealed: let the sender have it. Called with the lock held."""

    def _wait_for_room(self, size: int) -> None:
        """Wait, with the lock released, until `size` bytes are free or the producer is closed.

        Raises BufferExhaustedError.
        """
        raise NotImplementedError

    def _room_is_free(self) -> None:
        """Tell the callers that wait for room. Called with the lock held."""
        raise NotImplementedError

    def _open(self, queue: PartitionQueue) -> ProducerBatch:
        batch = ProducerBatch(queue, self._completion, self._clock.monotonic())
        batch.columns = BatchColumns()
        queue.open = batch
        self._unfinished[id(batch)] = batch
        if self.is_wait_expected and len(self._unfinished) == 1:
            return batch
        if self.is_urgent or not self._drains_by(batch.created + self._linger_s):
            self._wake_sender()
        return batch

    def _reserve(self, batch: ProducerBatch, needed: int) -> None:
        """Let the batch hold `needed` bytes, and a step beyond if there is room."""
        wanted = max(needed, min(batch.reserved_bytes + RESERVE_STEP_BYTES, self._batch_bytes_max))
        room = self._buffer_bytes_max - self.reserved_bytes
        granted = min(wanted - batch.reserved_bytes, room)
        batch.reserved_bytes += granted
        self.reserved_bytes += granted

    def trim(self, batch: ProducerBatch) -> None:
        """Free what a batch reserved and does not use: no record is added any more.

        Called with the lock held.
        """
        left = self.reserved_bytes - batch.reserved_bytes + batch.bytes_held
        self.reserved_bytes, batch.reserved_bytes = left, batch.bytes_held  # Ctrl-C: both or none
        self._room_is_free()

    def add_built(self, queue: PartitionQueue, data: bytearray, count: int) -> ProducerBatch:
        """Queue a batch that is built already.

        Raises MessageTooLargeError, BufferExhaustedError, ClosedError.
        """
        size = len(data)
        self._check_size(size, "a batch of")
        with self.lock:
            while not self.is_closed and self.reserved_bytes + size > self._buffer_bytes_max:
                self._wait_for_room(size)
            self._check_open()
            batch = ProducerBatch(queue, self._completion, self._clock.monotonic())
            batch.data, batch.count, batch.bytes_held = data, count, size
            batch.reserved_bytes = size
            queue.seal()
            queue.sealed.append(batch)
            self._unfinished[id(batch)] = batch
            self.reserved_bytes += size
            self._wake_sender()
        return batch

    def _check_size(self, size: int, what: str) -> None:
        if size <= self._size_max:
            return
        for name in ("max_request_size", "buffer_memory"):
            limit = getattr(self._options, name)
            if size > limit:
                raise MessageTooLargeError(f"{what} {size} bytes: {name} is {limit}")

    def full(self, size: int) -> BufferExhaustedError:
        """The error of a caller that waited `max_block_ms` for `size` bytes."""
        causes = summary(self._outages.outages())
        return BufferExhaustedError(
            f"{self.reserved_bytes} of {self._buffer_bytes_max} bytes of buffer_memory are in use, "
            f"and no {size} bytes became free within {self._options.max_block_ms / 1000:g} s"
            + (f": {causes}" if causes else "")
        )

    def finished(self, batches: list[ProducerBatch]) -> list[ProducerBatch]:
        """Free the memory of batches that are acknowledged or have failed.

        Gives those batches, and the batches that were split into them and have no other part left.
        """
        done: list[ProducerBatch] = []
        with self.lock:
            for batch in batches:
                current: ProducerBatch | None = batch
                while current is not None:
                    done.append(current)
                    self._free(current)
                    current = current.parent
                    if current is not None:
                        current.parts_left -= 1
                        if current.parts_left:
                            break
            self._room_is_free()
        return done

    def settle(self, batch: ProducerBatch) -> None:
        """Free the memory of one batch that is acknowledged and was not split. Called with the lock
        held."""
        self._free(batch)
        self._room_is_free()

    def _free(self, batch: ProducerBatch) -> None:
        batch.columns = batch.data = None
        left = self.reserved_bytes - batch.reserved_bytes
        self.reserved_bytes, batch.reserved_bytes = left, 0  # Ctrl-C: both or none
        self._unfinished.pop(id(batch), None)

    def close(self) -> None:
        """Accept no more records; callers that wait for room raise ClosedError."""
        with self.lock:
            self.is_closed = True
            self._room_is_free()


class ThreadAccumulator(RecordAccumulator):
    """The accumulator of a blocking producer: its callers are threads."""

    def __init__(self, parts: AccumulatorParts) -> None:
        super().__init__(parts)
        self._room = threading.Condition(self.lock)

    def _pause(self) -> None:
        self.lock.release()
        try:
            sleep(YIELD_S)
        finally:
            self.lock.acquire()

    def _room_is_free(self) -> None:
        if self.blocked_senders or self.is_closed:
            self._room.notify_all()

    def _wait_for_room(self, size: int) -> None:
        if self._host.is_current:
            raise BufferExhaustedError(
                f"buffer_memory ({self._buffer_bytes_max} bytes) is full. This is a callback on "
                "the producer's own thread: waiting here would keep it from sending"
            )
        deadline = self._clock.monotonic() + self._options.max_block_ms / 1000
        self.blocked_senders += 1
        try:
            while self.reserved_bytes + size > self._buffer_bytes_max and not self.is_closed:
                self._wake_sender()
                left = deadline - self._clock.monotonic()
                if left <= 0:
                    raise self.full(size)
                self._room.wait(left)
        finally:
            self.blocked_senders -= 1
