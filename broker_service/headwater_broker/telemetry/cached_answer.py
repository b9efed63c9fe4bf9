"""A value that is computed at most once per interval, and once for concurrent callers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from headwater.clock import Clock

Value = TypeVar("Value")


class CachedAnswer(Generic[Value]):
    """Caches the result of `make` for `keep_s`; concurrent callers share one computation."""

    def __init__(self, make: Callable[[], Awaitable[Value]], clock: Clock, keep_s: float) -> None:
        self._make = make
        self._clock = clock
        self._keep_s = keep_s
        self._made: tuple[float, Value] | None = None
        self._making: asyncio.Task[Value] | None = None

    async def get(self) -> Value:
        """A value no older than `keep_s`. Raises what `make` raises; the next call tries again."""
        if self._made is not None and self._clock.monotonic() - self._made[0] < self._keep_s:
            return self._made[1]
        if self._making is None:
            self._making = asyncio.get_running_loop().create_task(self._run())
            self._making.add_done_callback(self._forget)
        # A caller that is cancelled must not cancel the computation for the others.
        return await asyncio.shield(self._making)

    async def _run(self) -> Value:
        value = await self._make()
        self._made = (self._clock.monotonic(), value)
        return value

    def _forget(self, task: asyncio.Task[Value]) -> None:
        self._making = None
        if not task.cancelled():
            task.exception()  # marks it as retrieved, as all callers may have been cancelled
