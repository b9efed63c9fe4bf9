"""What `Producer.send` gives back: a future as light as can be, one small object per record.

Its state is its batch's; there is no lock and no event per record. Offers what
`concurrent.futures.Future` offers to callers: `result`, `exception`, `done`, `add_done_callback`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from headwater.client.core.producing import Batch
from headwater.client.errors import KafkaTimeoutError
from headwater.client.values import RecordMetadata, SendSummary


class Completion:
    """Wakes those who wait for batches; one per producer."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self.condition = threading.Condition()
        self._clock_s = clock_s

    def wait(self, batches: list[Batch], timeout_s: float | None) -> bool:
        """Until all of them are done; False when time is up."""
        deadline = None if timeout_s is None else self._clock_s() + timeout_s
        with self.condition:
            for batch in batches:
                while not batch.is_done:
                    left = None if deadline is None else deadline - self._clock_s()
                    if left is not None and left <= 0:
                        return False
                    self.condition.wait(left)
        return True

    def finish(self, batches: list[Batch]) -> None:
        """Mark them done, wake waiters, run callbacks (on the calling thread)."""
        with self.condition:
            for batch in batches:
                batch.is_done = True
            self.condition.notify_all()
        for batch in batches:
            callbacks, batch.callbacks = batch.callbacks, None
            for callback in callbacks or ():
                callback()


class SendFuture:
    """The fate of one record."""

    __slots__ = ("_batch", "_index", "_timestamp")

    def __init__(self, batch: Batch, index: int, timestamp: int) -> None:
        self._batch = batch
        self._index = index
        self._timestamp = timestamp

    def done(self) -> bool:
        """True once the record is acknowledged or has failed."""
        return self._batch.is_done

    def cancelled(self) -> bool:
        """Always False: what was sent cannot be called back."""
        return False

    def cancel(self) -> bool:
        """Always False."""
        return False

    def exception(self, timeout: float | None = None) -> Exception | None:
        """The error, or None on success; waits for it. Raises KafkaTimeoutError."""
        batch = self._batch
        if not batch.is_done:
            completion = batch.owner
            assert isinstance(completion, Completion)
            if not completion.wait([batch], timeout):
                raise KafkaTimeoutError(f"the record is not acknowledged after {timeout} s")
        return batch.error

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Where the record went. Raises its error, or KafkaTimeoutError when time is up."""
        error = self.exception(timeout)
        if error is not None:
            raise error
        batch = self._batch
        offset = batch.base_offset + self._index if batch.base_offset >= 0 else -1
        timestamp = batch.append_time if batch.append_time >= 0 else self._timestamp
        return RecordMetadata(batch.queue.topic, batch.queue.partition, offset, timestamp)

    def add_done_callback(self, callback: Callable[[SendFuture], Any]) -> None:
        """Call `callback(self)` when done: on the producer's thread, or now if done already."""
        batch = self._batch
        completion = batch.owner
        assert isinstance(completion, Completion)
        with completion.condition:
            if not batch.is_done:
                if batch.callbacks is None:
                    batch.callbacks = []
                batch.callbacks.append(lambda: callback(self))
                return
        callback(self)


class TableFuture:
    """The fate of a whole table's rows."""

    def __init__(self, batches: list[Batch], completion: Completion, rows: int) -> None:
        self._batches = batches
        self._completion = completion
        self._rows = rows

    def done(self) -> bool:
        """True once every batch is acknowledged or has failed."""
        return all(b.is_done for b in self._batches)

    def result(self, timeout: float | None = None) -> SendSummary:
        """Rows, bytes and offsets. Raises the first batch's error, or KafkaTimeoutError."""
        if not self._completion.wait(self._batches, timeout):
            raise KafkaTimeoutError(f"the table is not acknowledged after {timeout} s")
        offsets: dict[int, tuple[int, int]] = {}
        for batch in self._batches:
            if batch.error is not None:
                raise batch.error
            if batch.base_offset < 0:
                continue
            first, end = offsets.get(batch.queue.partition, (batch.base_offset, 0))
            last = batch.base_offset + batch.count
            offsets[batch.queue.partition] = (min(first, batch.base_offset), max(end, last))
        sent = sum(b.bytes_held for b in self._batches)
        return SendSummary(self._rows, sent, len(self._batches), offsets)
