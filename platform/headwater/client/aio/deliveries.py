"""Results of `AsyncProducer` for records and tables: to be awaited, or not.

A batch wakes its waiters in one step. Cancelling an `await` ends that wait, and nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Any, cast

from headwater.client.core.partition_queue import ProducerBatch
from headwater.client.engine_host import AsyncHost
from headwater.client.futures import BatchCompletion, RecordOutcome, table_summary
from headwater.client.values import RecordMetadata, SendSummary


class TaskCompletion(BatchCompletion):
    """Tells waiting tasks that batches are done; one per producer."""

    def __init__(self, clock_s: Callable[[], float], host: AsyncHost) -> None:
        super().__init__(clock_s)
        self._host = host
        self._waiters: dict[int, list[asyncio.Future[None]]] = {}
        """By identity of the batch; on the callers' loop only."""

    def arrived(self, batch: ProducerBatch) -> asyncio.Future[None]:
        """A future, of the caller's own, that is done when the batch is."""
        future: asyncio.Future[None] = self._host.callers.create_future()
        waiting = self._waiters.get(id(batch))
        if waiting is not None:
            waiting.append(future)
            return future
        self._waiters[id(batch)] = [future]
        if not self.add_callback(batch, lambda: self._host.deliver(lambda: self._wake(batch))):
            self._wake(batch)
        return future

    def _wake(self, batch: ProducerBatch) -> None:
        for future in self._waiters.pop(id(batch), ()):
            if not future.done():
                future.set_result(None)


class Delivery(RecordOutcome):
    """The outcome of one record that was queued: `await` it for its RecordMetadata."""

    __slots__ = ()

    def done(self) -> bool:
        """True once the record is acknowledged or has failed."""
        return self._batch.is_done

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        batch = self._batch
        if not batch.is_done:
            yield from cast(TaskCompletion, batch.completion).arrived(batch).__await__()
        return self._metadata()

    def result(self) -> RecordMetadata:
        """Where the record was written. Raises its error; asyncio.InvalidStateError before it is
        done."""
        self._check_done()
        return self._metadata()

    def exception(self) -> Exception | None:
        """The record's error, or None. Raises asyncio.InvalidStateError before it is done."""
        self._check_done()
        return self._error()

    def _check_done(self) -> None:
        if not self._batch.is_done:
            raise asyncio.InvalidStateError("the record is not acknowledged yet: await it")

    def add_done_callback(self, callback: Callable[[Delivery], Any]) -> None:
        """Call `callback(self)` on the callers' loop once the record is done."""
        future = cast(TaskCompletion, self._batch.completion).arrived(self._batch)
        future.add_done_callback(lambda _: callback(self))


class TableDelivery:
    """The outcome of a table that was queued: `await` it for its SendSummary."""

    def __init__(self, batches: list[ProducerBatch], rows: int) -> None:
        self._batches = batches
        self._rows = rows

    def done(self) -> bool:
        """True once every batch is acknowledged or has failed."""
        return all(b.is_done for b in self._batches)

    def __await__(self) -> Generator[Any, None, SendSummary]:
        for batch in self._batches:
            if not batch.is_done:
                yield from cast(TaskCompletion, batch.completion).arrived(batch).__await__()
        return table_summary(self._batches, self._rows)
