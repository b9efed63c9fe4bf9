"""Periodic work of the broker on timers of the loop, at a fixed rate; work that fails is logged and
runs again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

logger = logging.getLogger(__name__)


class Scheduler:
    """Calls short functions at intervals (Kafka's `KafkaScheduler`); disk waits go to the pool."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._work: dict[str, tuple[float, Callable[[], object]]] = {}
        self._stopped = False

    def every(
        self, name: str, seconds: float, work: Callable[[], object], *, first_s: float | None = None
    ) -> None:
        """Call `work` every `seconds`, first after `first_s` or one interval, whichever is less."""
        delay = seconds if first_s is None else min(first_s, seconds)
        self._work[name] = (seconds, work)
        self._timers[name] = self._loop.call_at(self._loop.time() + delay, self._run, name)

    def change_interval(self, name: str, seconds: float) -> None:
        """Run the work named `name` every `seconds` from now on; nothing when it does already."""
        known = self._work.get(name)
        if known is None or known[0] == seconds or self._stopped:
            return
        self._timers[name].cancel()
        self.every(name, seconds, known[1])

    def stop(self) -> None:
        """No more calls."""
        self._stopped = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _run(self, name: str) -> None:
        timer, (seconds, work) = self._timers[name], self._work[name]
        try:
            work()
        except Exception:
            logger.exception("periodic work %r failed", name)
        if not self._stopped and self._timers[name] is timer:
            due_s = next_run(timer.when(), seconds, self._loop.time())
            self._timers[name] = self._loop.call_at(due_s, self._run, name)


def next_run(due_s: float, seconds: float, now_s: float) -> float:
    """When work that was due at `due_s` runs again: a whole number of intervals later, so that the
    time that it takes delays no later run. Runs that were missed, as while the process was
    suspended, are left out."""
    late_s = max(now_s - due_s, 0.0)
    return now_s if seconds <= 0 else due_s + (late_s // seconds + 1) * seconds
