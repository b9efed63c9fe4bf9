"""The accumulator of an asyncio producer: its callers are tasks, and wait for room in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from headwater.client.engine_host import AsyncHost
from headwater.client.errors import BufferExhaustedError
from headwater.client.record_accumulator import AccumulatorParts, RecordAccumulator

F = TypeVar("F")


class BufferFullError(BufferExhaustedError):
    """There is no room in `buffer_memory` now. `await send(...)` waits for it."""

    def __init__(self, detail: str, size: int = 0) -> None:
        super().__init__(detail)
        self.size = size
        """The bytes that are wanted."""


class TaskAccumulator(RecordAccumulator):
    """Batches and memory, for tasks. One that finds no room waits its turn: first come, first
    served."""

    def __init__(self, parts: AccumulatorParts, host: AsyncHost) -> None:
        super().__init__(parts)
        self._callers_host = host
        self._turn = asyncio.Lock()
        self._room: asyncio.Future[None] | None = None
        self.is_pausing = False
        """True after a batch was sealed: the next task lets the loop send it first. A task that
        only sends would fill the memory before anything leaves."""

    def _pause(self) -> None:
        self.is_pausing = True

    def _wait_for_room(self, size: int) -> None:
        self._wake_sender()
        raise BufferFullError(
            f"buffer_memory ({self._buffer_bytes_max} bytes) is full: `await send(...)` waits for "
            "room",
            size,
        )

    def _room_is_free(self) -> None:
        room, self._room = self._room, None
        if room is not None:
            self._callers_host.deliver(lambda: _finish(room))

    async def in_turn(self, add: Callable[[], F]) -> F:
        """The result of `add`, called when there is room for it and nobody waits before.

        A task that is cancelled while it waits has added nothing; once `add` has returned, nothing
        is awaited any more. Raises BufferExhaustedError after `max_block_ms`.
        """
        wanted = 0
        self.blocked_senders += 1
        try:
            async with asyncio.timeout(self._options.max_block_ms / 1000) as limit:
                async with self._turn:
                    if self.is_pausing:
                        self.is_pausing = False
                        await asyncio.sleep(0)
                    while True:
                        room = self._room = asyncio.get_running_loop().create_future()
                        try:
                            return add()
                        except BufferFullError as e:
                            wanted = e.size
                        await room
        except TimeoutError:
            if not limit.expired():
                raise
            raise self.full(wanted) from None
        finally:
            self.blocked_senders -= 1

    async def turn_passed(self) -> None:
        """Wait until every task that waits for room now has had its turn."""
        async with self._turn:
            pass


def _finish(room: asyncio.Future[None]) -> None:
    if not room.done():
        room.set_result(None)
