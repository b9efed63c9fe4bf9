"""`AsyncShareConsumer.typed`: the records of typed topics, decoded."""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

from headwater.client.aio.task_steps import TaskSteps
from headwater.client.aio.typed_reader import AsyncDeadLetters
from headwater.client.share_engine import ShareEngine
from headwater.client.share_typed_reader import ITERATE_POLL_MS, settled
from headwater.client.typed_records import TypedDecoding, TypedRecord

K = TypeVar("K")
V = TypeVar("V")


class AsyncShareTypedReader(Generic[K, V]):
    """Takes typed records through a share consumer, which goes on to acknowledge and commit.

    A task that is cancelled loses no record: rows stay buffered until they are returned.
    """

    def __init__(
        self,
        engine: ShareEngine,
        steps: TaskSteps,
        turn: asyncio.Lock,
        decoding: TypedDecoding[K, V],
        letters: AsyncDeadLetters,
    ) -> None:
        self._engine = engine
        self._steps = steps
        self._turn = turn
        self._decoding = decoding
        self._letters = letters

    def __aiter__(self) -> AsyncShareTypedReader[K, V]:
        return self

    async def __anext__(self) -> TypedRecord[K, V]:
        """The next record; see `AsyncShareConsumer.__anext__`."""
        clock, guard = self._engine.clock, self._engine.guard
        timeout_ms = self._engine.options.consumer_timeout_ms
        wait_ms = ITERATE_POLL_MS if timeout_ms is None else min(timeout_ms, ITERATE_POLL_MS)
        began = clock.monotonic()
        async with self._turn:
            while not guard.is_closed:
                records = await self._poll(wait_ms, 1, flush=False)
                if records:
                    return records[0]
                if timeout_ms is not None and (clock.monotonic() - began) * 1000 >= timeout_ms:
                    break
        raise StopAsyncIteration

    async def getmany(
        self, timeout_ms: float = 0, max_records: int | None = None
    ) -> list[TypedRecord[K, V]]:
        """Up to `max_records` records (by default `max_poll_records`); empty when none came within
        `timeout_ms`, and when those that came were skipped. Raises what `ShareTypedReader.poll`
        raises."""
        async with self._turn:
            return await self._poll(timeout_ms, self._engine.limit(max_records), flush=True)

    async def _poll(self, timeout_ms: float, limit: int, *, flush: bool) -> list[TypedRecord[K, V]]:
        engine = self._engine
        await asyncio.sleep(0)  # buffered records keep the loop otherwise
        await self._steps.run(engine.wait(timeout_ms, limit, flush=flush))
        with engine.changes.condition:
            rows = engine.state.peek(limit, engine.clock.monotonic())
        if self._decoding.may_block:
            turn = await asyncio.to_thread(self._decoding.decode, rows)
        else:
            turn = self._decoding.decode(rows)
        if turn.letters:
            await self._letters.deliver(turn.letters)
        with engine.changes.condition:
            return settled(engine.state, rows, turn)
