"""`AsyncConsumer.typed`: the records of typed topics, decoded; dead letters before the commit."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, NamedTuple, TypeVar

from headwater.client.aio.producer import AsyncProducer
from headwater.client.consumer_engine import ConsumerEngine
from headwater.client.errors import RecordDeserializationError
from headwater.client.typed_records import Letter, SentLetters, Turn, TypedDecoding, TypedRecord
from headwater.client.values import ConsumerRecord

K = TypeVar("K")
V = TypeVar("V")
Fill = Callable[[float | None], Awaitable[bool]]
"""Wait until records are pending; False when the time is up or the consumer is closed."""


class _Ready(NamedTuple, Generic[K, V]):
    """A decoded record, and the pending rows that it deals with; or what ends a turn."""

    record: TypedRecord[K, V] | None
    rows: list[ConsumerRecord]
    error: RecordDeserializationError | None


class AsyncDeadLetters:
    """Sends dead letters with a producer of its own, or with a given one."""

    def __init__(self, make: Callable[[], AsyncProducer], given: AsyncProducer | None) -> None:
        self._make = make
        self._producer = given
        self._is_own = given is None

    async def deliver(self, letters: list[Letter]) -> None:
        """Send them and wait until all are acknowledged. Raises the first error."""
        if self._producer is None:
            self._producer = self._make()
            await self._producer.start()
        send = self._producer.send
        for sent in [await send(to, row.value, row.key, headers) for to, row, headers in letters]:
            await sent

    async def aclose(self) -> None:
        """Close the own producer."""
        if self._is_own and self._producer is not None:
            await self._producer.aclose()


class AsyncTypedReader(Generic[K, V]):
    """Reads typed records through a consumer, which goes on to commit, seek and pause.

    A task that is cancelled loses no record: rows stay pending until they are returned.
    """

    def __init__(
        self,
        engine: ConsumerEngine,
        fill: Fill,
        decoding: TypedDecoding[K, V],
        letters: AsyncDeadLetters,
    ) -> None:
        self._engine = engine
        self._state = engine.state
        self._fill = fill
        self._decoding = decoding
        self._letters = letters
        self._turn_lock = asyncio.Lock()
        self._ready: deque[_Ready[K, V]] = deque()
        self._sent = SentLetters()

    def __aiter__(self) -> AsyncTypedReader[K, V]:
        return self

    async def __anext__(self) -> TypedRecord[K, V]:
        """The next record. The iteration ends after `consumer_timeout_ms` without one, or at the
        consumer's `aclose`."""
        async with self._turn_lock:
            while True:
                while self._ready:
                    record, rows, error = self._ready.popleft()
                    if self._engine.guard.is_closed:
                        raise StopAsyncIteration
                    if not self._state.drop(rows):
                        self._ready.clear()  # a seek or a rebalance: they are not the next ones
                    elif record is not None:
                        return record
                    elif error is not None:
                        raise error
                rows, turn = await self._next_turn(self._engine.options.consumer_timeout_ms, None)
                if not rows:
                    raise StopAsyncIteration
                at = 0
                for record, end in zip(turn.records, turn.ends, strict=True):
                    self._ready.append(_Ready(record, rows[at:end], None))
                    at = end
                self._ready.append(_Ready(None, rows[at : turn.taken], turn.error))

    async def getmany(
        self, timeout_ms: float = 0, max_records: int | None = None
    ) -> list[TypedRecord[K, V]]:
        """Up to `max_records` records (by default `max_poll_records`); empty when none came within
        `timeout_ms`, and when those that came were skipped.

        Raises RecordDeserializationError where `on_undecodable` says so, once the records before
        are returned; SerializerUnavailableError; and what `AsyncConsumer.getmany` raises.
        """
        async with self._turn_lock:
            self._ready.clear()
            rows, turn = await self._next_turn(timeout_ms, max_records)
            self._finish(rows, turn)
            return turn.records

    def _finish(self, rows: list[ConsumerRecord], turn: Turn[K, V]) -> None:
        """The rows of a turn are dealt with. Raises its error if there is nothing to return."""
        is_next = self._state.drop(rows[: turn.taken])
        if is_next and turn.error is not None and not turn.records:
            raise turn.error

    async def _next_turn(
        self, timeout_ms: float | None, max_records: int | None
    ) -> tuple[list[ConsumerRecord], Turn[K, V]]:
        """The next rows, still pending, and what they are; dead letters are acknowledged."""
        limit = self._engine.options.max_poll_records if max_records is None else max_records
        while True:
            await self._fill(timeout_ms)
            rows = self._state.peek(limit)
            if self._decoding.may_block:
                turn = await asyncio.to_thread(self._decoding.decode, rows)
            else:
                turn = self._decoding.decode(rows)
            if letters := self._sent.new(turn.letters):
                await self._letters.deliver(letters)
            self._sent.sent(turn.letters)
            if self._state.peek(len(rows)) == rows:
                return rows, turn
