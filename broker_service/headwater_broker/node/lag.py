"""The loop's worst delay: how late a timer fires is how long everybody waits."""

from __future__ import annotations

import asyncio
from collections import deque

PROBE_S = 0.01
WINDOW = 60
"""How many one-second maxima are kept."""
WARN_S = 0.02
"""Beyond this a request can be seen to stall (tests fail above it)."""


class LagProbe:
    """Fires every 10 ms; keeps the worst delay of each of the last 60 seconds, and of all time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._second = 0
        self._maxima: deque[float] = deque([0.0], maxlen=WINDOW)
        self.worst_s = 0.0
        """Since `settle` reset it."""
        self.late_total = 0
        """How often the delay was above 20 ms."""

    def start(self) -> None:
        """Begin to measure."""
        self.worst_s = 0.0
        self._schedule()

    def stop(self) -> None:
        """End measuring."""
        if self._timer is not None:
            self._timer.cancel()

    @property
    def recent_worst_s(self) -> float:
        """The worst delay of the last minute."""
        return max(self._maxima)

    def _schedule(self) -> None:
        self._due = self._loop.time() + PROBE_S
        self._timer = self._loop.call_at(self._due, self._fire)

    def _fire(self) -> None:
        now = self._loop.time()
        late = max(now - self._due, 0.0)
        second = int(now)
        if second != self._second:
            self._second = second
            self._maxima.append(late)
        elif late > self._maxima[-1]:
            self._maxima[-1] = late
        if late > WARN_S:
            self.late_total += 1
        self.worst_s = max(self.worst_s, late)
        self._schedule()
