"""When the producer's sender looks by itself for batches that are due: what lingers, or is retried.

One timer, which stays when it fires too early: then a batch that is opened before it fires needs
no wake-up of the loop, which costs the sending thread as much as a hundred records.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

DELAY_MIN_S = 0.0005
NEVER = float("inf")


class DrainTimer:
    """Calls `drain` on the loop. `set` and `stop` are for the loop's thread."""

    def __init__(self, drain: Callable[[], None]) -> None:
        self._drain = drain
        self._handle: asyncio.TimerHandle | None = None
        self._fires_at = NEVER

    def fires_by(self, due: float) -> bool:
        """True when the sender looks by then (monotonic s) without being woken. Any thread may ask,
        with the accumulator's lock held: what it has queued is seen."""
        return self._fires_at <= due

    def set(self, due: float, now: float) -> None:
        """Look at this time (monotonic s) at the latest."""
        due = max(due, now + DELAY_MIN_S)
        if self._fires_at <= due:
            return
        if self._handle is not None:
            self._handle.cancel()
        self._handle = asyncio.get_running_loop().call_later(due - now, self._fire)
        self._fires_at = due

    def _fire(self) -> None:
        self._handle, self._fires_at = None, NEVER
        self._drain()

    def stop(self) -> None:
        """Look no more."""
        if self._handle is not None:
            self._handle.cancel()
