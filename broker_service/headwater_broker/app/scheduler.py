"""The broker's periodic work, as plain loop timers; one that fails is told and goes on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

logger = logging.getLogger(__name__)


class Ticks:
    """Calls functions at intervals. They must be short; what waits for a disk goes to the pool."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._stopped = False

    def every(
        self, name: str, seconds: float, work: Callable[[], object], *, first_s: float | None = None
    ) -> None:
        """Call `work` every `seconds`, first after `first_s` or one interval, what is shorter."""
        delay = seconds if first_s is None else min(first_s, seconds)
        self._timers[name] = self._loop.call_later(delay, self._run, name, seconds, work)

    def stop(self) -> None:
        """No more calls."""
        self._stopped = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _run(self, name: str, seconds: float, work: Callable[[], object]) -> None:
        try:
            work()
        except Exception:
            logger.exception("periodic work %r failed", name)
        if not self._stopped:
            self.every(name, seconds, work)
