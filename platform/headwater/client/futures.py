"""The futures of `Producer.send` and `send_table`, one small object per record or table.

A record's state is its batch's: no lock and no event per record. The interface is the part of
`concurrent.futures.Future` that callers use: `result`, `exception`, `done`, `add_done_callback`.
`headwater.aio` has its own, which are awaited; `RecordOutcome` is what both share.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable
from typing import Any

from headwater.client.core.partition_queue import ProducerBatch
from headwater.client.errors import KafkaTimeoutError
from headwater.client.values import RecordMetadata, SendSummary

log = logging.getLogger(__name__)


class BatchCompletion:
    """Tells waiting threads and callbacks that batches are done; one per producer."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._condition = threading.Condition()
        self._clock_s = clock_s
        self.before_wait: Callable[[ProducerBatch, float | None], None] | None = None
        """Called with the only batch that a thread is about to wait for, and its time limit in
        seconds: the thread may send it itself (`headwater.client.lone_sends`)."""

    def wait(self, batches: list[ProducerBatch], timeout_s: float | None) -> bool:
        """True once all batches are done; False when the time is up."""
        deadline = None if timeout_s is None else self._clock_s() + timeout_s
        if self.before_wait is not None and len(batches) == 1:
            self.before_wait(batches[0], timeout_s)
            if batches[0].is_done:
                return True
        with self._condition:
            for batch in batches:
                while not batch.is_done:
                    left = None if deadline is None else deadline - self._clock_s()
                    if left is not None and left <= 0:
                        return False
                    self._condition.wait(left)
        return True

    def add_callback(self, batch: ProducerBatch, callback: Callable[[], None]) -> bool:
        """Call `callback` when the batch is done. False if it is done already."""
        with self._condition:
            if batch.is_done:
                return False
            if batch.callbacks is None:
                batch.callbacks = []
            batch.callbacks.append(callback)
        return True

    def finish(self, batches: list[ProducerBatch]) -> None:
        """Mark the batches as done, wake the waiting threads, run the callbacks on this thread."""
        self.mark(batches)
        self.call_back(batches)

    def mark(self, batches: list[ProducerBatch]) -> None:
        """Mark the batches as done and wake the waiting threads. `call_back` comes next."""
        with self._condition:
            for batch in batches:
                batch.is_done = True
            self._condition.notify_all()

    @staticmethod
    def call_back(batches: list[ProducerBatch]) -> None:
        """Run the callbacks of batches that are done, on this thread. One that raises is logged:
        the next ones are called all the same."""
        for batch in batches:
            callbacks, batch.callbacks = batch.callbacks, None
            for callback in callbacks or ():
                try:
                    callback()
                except Exception:
                    log.exception("a callback of add_done_callback raised")


class RecordOutcome:
    """One record that was queued: its place in a batch, which `RecordSending` sets."""

    __slots__ = ("_batch", "_index", "_timestamp")

    _batch: ProducerBatch
    _index: int
    _timestamp: int

    def done(self) -> bool:
        """True once the record is acknowledged or has failed."""
        return self._batch.is_done

    def cancelled(self) -> bool:
        """Always False: a record that was queued cannot be cancelled."""
        return False

    def cancel(self) -> bool:
        """Always False: a record that was queued cannot be cancelled."""
        return False

    def add_done_callback(self, callback: Callable[[Any], Any]) -> None:
        """Call `callback` with the future once the record is done."""
        raise NotImplementedError

    def outcome(self) -> tuple[RecordMetadata | None, Exception | None]:
        """Metadata, or error, of a record that is done."""
        error = self._error()
        return (None, error) if error is not None else (self._metadata(), None)

    def _error(self) -> Exception | None:
        """The error of a record that is done; None when it is acknowledged."""
        return self._batch.locate(self._index)[0].error

    def _metadata(self) -> RecordMetadata:
        """Where a record that is done was written. Raises its error."""
        batch, index = self._batch.locate(self._index)
        if batch.error is not None:
            raise batch.error
        offset = batch.base_offset + index if batch.base_offset >= 0 else -1
        timestamp = batch.append_time if batch.append_time >= 0 else self._timestamp
        return RecordMetadata(batch.queue.topic, batch.queue.partition, offset, timestamp)


class SendFuture(RecordOutcome):
    """The outcome of one record that was sent."""

    __slots__ = ()

    def exception(self, timeout: float | None = None) -> Exception | None:
        """Wait up to `timeout` seconds; the record's error, or None when it is acknowledged.

        Raises KafkaTimeoutError when the time is up.
        """
        batch = self._batch
        if not batch.is_done and not batch.completion.wait([batch], timeout):
            place = f"{batch.queue.topic}-{batch.queue.partition}"
            text = f"the record for {place} is not acknowledged after {timeout} s"
            cause = batch.queue.last_error
            raise KafkaTimeoutError(f"{text}: {cause}" if cause else text)
        return self._error()

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Wait up to `timeout` seconds; where the record was written.

        Raises the record's error, or KafkaTimeoutError when the time is up.
        """
        self.exception(timeout)
        return self._metadata()

    def add_done_callback(self, callback: Callable[[SendFuture], Any]) -> None:
        """Call `callback(self)` when the record is done: on the producer's background thread, or
        at once if it is done already."""
        batch = self._batch
        if not batch.completion.add_callback(batch, lambda: callback(self)):
            callback(self)


class TableFuture:
    """The outcome of a table that was sent."""

    def __init__(
        self, batches: list[ProducerBatch], completion: BatchCompletion, rows: int
    ) -> None:
        self._batches = batches
        self._completion = completion
        self._rows = rows

    def done(self) -> bool:
        """True once every batch is acknowledged or has failed."""
        return all(b.is_done for b in self._batches)

    def exception(self, timeout: float | None = None) -> Exception | None:
        """Wait up to `timeout` seconds; the error of the first batch that failed, or None.

        Raises KafkaTimeoutError when the time is up.
        """
        if not self._completion.wait(self._batches, timeout):
            raise KafkaTimeoutError(f"the table is not acknowledged after {timeout} s")
        leaves = (leaf for batch in self._batches for leaf in batch.leaves())
        return next((leaf.error for leaf in leaves if leaf.error is not None), None)

    def add_done_callback(self, callback: Callable[[TableFuture], Any]) -> None:
        """Call `callback(self)` once every batch is done: on the producer's background thread, or
        at once if they are done already."""
        left = itertools.count(len(self._batches) - 1, -1)

        def one_done() -> None:
            if next(left) == 0:
                callback(self)

        for batch in self._batches:
            if not self._completion.add_callback(batch, one_done):
                one_done()
        if not self._batches:
            callback(self)

    def result(self, timeout: float | None = None) -> SendSummary:
        """Wait up to `timeout` seconds; rows, bytes and offsets.

        Raises the error of the first batch that failed, or KafkaTimeoutError when the time is up.
        """
        if not self._completion.wait(self._batches, timeout):
            raise KafkaTimeoutError(f"the table is not acknowledged after {timeout} s")
        return table_summary(self._batches, self._rows)


def table_summary(batches: list[ProducerBatch], rows: int) -> SendSummary:
    """The outcome of a table whose batches are done. Raises the error of the first that failed."""
    sent = [leaf for batch in batches for leaf in batch.leaves()]
    offsets: dict[int, tuple[int, int]] = {}
    for batch in sent:
        if batch.error is not None:
            raise batch.error
        if batch.base_offset < 0:
            continue
        first, end = offsets.get(batch.queue.partition, (batch.base_offset, 0))
        last = batch.base_offset + batch.count
        offsets[batch.queue.partition] = (min(first, batch.base_offset), max(end, last))
    size = sum(b.bytes_held for b in batches)
    return SendSummary(rows, size, len(sent), offsets)
