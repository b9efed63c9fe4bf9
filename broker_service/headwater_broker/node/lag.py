"""The loop's worst delays, with what the loop itself did apart from what the machine did to it.

Two measures, because a timer that fires late says nothing of the cause:

- *delay*: how late a timer fires. On a box with more work than cores most of it is the wait for a
  core, which no broker can avoid.
- *turn*: how long the loop was away from its selector in one go: every request waits at least so
  long. What the machine took is taken off: the time that the thread was runnable without a core
  (the kernel's run-queue delay), and, when the thread never slept in the turn, whatever is not its
  CPU time: then a hypervisor had the core. CPU time, waits for a disk and for the interpreter's
  lock remain. This is the measure that the broker is held to.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import select
import selectors
import threading
import time
from collections import deque
from collections.abc import Callable, Sized
from selectors import EVENT_READ, EVENT_WRITE
from typing import Any

PROBE_S = 0.1
"""The delay of timers is sampled so often. Each sample wakes a loop that has nothing to do, which
costs it ten times as much as a busy one."""
WINDOW = 60
"""How many one-second maxima are kept."""
WARN_S = 0.02
"""A turn beyond this stalls requests visibly (tests fail above it)."""
LOOK_S = 0.004
"""Only for turns longer than this the kernel is asked where the time went."""
WAITED_FRESH_S = 0.01
"""The run-queue delay that a long turn is compared with is at most so much older than the turn."""
FRESH_S = 0.001
"""The kernel is asked what the thread has used so far when it may have waited, or so often: to ask
in every turn of a busy broker would cost it a hundredth."""

# epoll's masks are the same on every Linux; a hang-up or an error is both, as for asyncio.
_NOT_IN = ~getattr(select, "EPOLLIN", 0)
_NOT_OUT = ~getattr(select, "EPOLLOUT", 0)

logger = logging.getLogger(__name__)

_used = resource.getrusage
_THREAD = resource.RUSAGE_THREAD


def own_seconds(held: float, cpu: float, waited: float, sleeps: int) -> float:
    """What a turn of `held` seconds cost by the loop's own doing.

    `cpu`: its CPU seconds; `waited`: its run-queue delay; `sleeps`: its voluntary context switches
    (a wait for a disk or a lock is one). Without a sleep only CPU time is the thread's own.
    """
    return max(held - waited, cpu) if sleeps else cpu


class RunQueue:
    """Seconds that the calling thread has waited for a core so far; always 0 where unknown."""

    def __init__(self) -> None:
        try:
            path = f"/proc/self/task/{threading.get_native_id()}/schedstat"
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._fd = -1

    def waited_s(self) -> float:
        """Run-queue delay, from /proc/self/task/N/schedstat."""
        if self._fd < 0:
            return 0.0
        try:
            return int(os.pread(self._fd, 64, 0).split()[1]) / 1e9
        except (OSError, ValueError, IndexError):
            return 0.0

    def close(self) -> None:
        """Release the descriptor."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class Maxima:
    """The largest value per second of the last minute, and of all time since a reset."""

    def __init__(self) -> None:
        self._seconds: deque[tuple[int, float]] = deque(maxlen=WINDOW)
        self.worst = 0.0

    def add(self, now: float, value: float) -> None:
        """Take a value measured at `now`."""
        second = int(now)
        if self._seconds and self._seconds[-1][0] == second:
            if value > self._seconds[-1][1]:
                self._seconds[-1] = (second, value)
        else:
            self._seconds.append((second, value))
        if value > self.worst:
            self.worst = value

    def recent(self, now: float) -> float:
        """The largest value of the last minute."""
        return max((v for s, v in self._seconds if now - s <= WINDOW), default=0.0)


class TurnClock(selectors.DefaultSelector):
    """The loop's selector; knows how long the loop was away from it, and tells who asks when a
    turn ends."""

    def __init__(self) -> None:
        super().__init__()
        own = vars(self)
        self._epoll = own.get("_selector") if _is_epoll(own) else None
        self._keys: dict[int, selectors.SelectorKey] = own.get("_fd_to_key", {})
        """Of the standard selector, which keeps them; where that is one of epoll's."""
        self.ready: Sized = ("unknown",)
        """What the loop has to call in the next turn."""
        self._at_end: list[Callable[[], object]] = []
        self._run_queue: RunQueue | None = None
        self._waited = 0.0
        self._waited_until = 0.0
        self._since = time.perf_counter()
        self._used = _used(_THREAD)
        self._used_until = 0.0
        self.turns = Maxima()
        self.late_total = 0

    def reset(self) -> None:
        """Begin to measure, on the loop's thread; what was before does not count."""
        if self._run_queue is None:
            self._run_queue = RunQueue()
        self._since = time.perf_counter()
        self._used = _used(_THREAD)
        self.turns = Maxima()
        self.late_total = 0
        self.look()

    def look(self) -> None:
        """Remember the run-queue delay so far: what a long turn is compared with."""
        if self._run_queue is not None:
            self._waited = self._run_queue.waited_s()
            self._waited_until = time.perf_counter() + WAITED_FRESH_S

    def at_end(self, callback: Callable[[], object]) -> None:
        """Call it when this turn ends, after all that the turn has to call."""
        self._at_end.append(callback)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """One turn ends here, the next one begins when there is work."""
        if self._at_end:
            callbacks, self._at_end = self._at_end, []
            for callback in callbacks:
                try:
                    callback()
                except Exception:  # it would end the loop; of a handle the loop says the same
                    logger.exception("the end of a turn failed")
            if self.ready or self._at_end:  # the loop has computed `timeout` without them
                timeout = 0
        ended = time.perf_counter()
        held = ended - self._since
        if held > LOOK_S and self._run_queue is not None:
            self._note(held)
        epoll = self._epoll
        events = super().select(timeout) if epoll is None else self._poll(epoll, timeout)
        self._since = now = time.perf_counter()
        if timeout != 0 or now >= self._used_until:
            self._used = _used(_THREAD)
            self._used_until = now + FRESH_S
            if now >= self._waited_until:
                self.look()
        return events

    def _poll(self, epoll: Any, timeout: float | None) -> list[tuple[selectors.SelectorKey, int]]:
        """As the standard selector, in one call instead of four: every turn pays for it."""
        keys, events = self._keys, []
        wait = -1 if timeout is None else timeout if timeout > 0 else 0
        for fd, mask in epoll.poll(wait, len(keys) or 1):
            key = keys.get(fd)
            if key is not None:
                ready = (mask & _NOT_IN and EVENT_WRITE) | (mask & _NOT_OUT and EVENT_READ)
                events.append((key, ready & key.events))
        return events

    def _note(self, held: float) -> None:
        before, after, waited = self._used, _used(_THREAD), self._waited
        self.look()
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        cpu = min(used, held)  # the sample before may be a little older than the turn
        sleeps = after.ru_nvcsw - before.ru_nvcsw
        own = own_seconds(held, cpu, self._waited - waited, sleeps)
        self.turns.add(time.perf_counter(), own)
        if own > WARN_S:
            self.late_total += 1
            logger.warning(
                "a turn of the event loop took %.1f ms: %.1f ms of CPU time, %d waits for a disk "
                "or a lock, %d page faults (%d from disk)",
                own * 1000, cpu * 1000, sleeps,
                after.ru_minflt - before.ru_minflt + after.ru_majflt - before.ru_majflt,
                after.ru_majflt - before.ru_majflt,
            )  # fmt: skip

    def close(self) -> None:
        """Release descriptors."""
        if self._run_queue is not None:
            self._run_queue.close()
        super().close()


def _is_epoll(own: dict[str, Any]) -> bool:
    kind = getattr(select, "epoll", None)
    return kind is not None and isinstance(own.get("_selector"), kind) and "_fd_to_key" in own


class MeasuredLoop(asyncio.SelectorEventLoop):
    """The broker's loop: a selector loop whose turns are measured."""

    def __init__(self) -> None:
        self.clock = TurnClock()
        super().__init__(self.clock)
        self.clock.ready = vars(self).get("_ready", self.clock.ready)  # asyncio's own queue

    def at_turn_end(self, callback: Callable[[], object]) -> None:
        """As `call_soon`, but at the end of this turn: a turn that has nothing else to call is
        spared (half of the turns of a broker with one busy client)."""
        self.clock.at_end(callback)


class LagProbe:
    """Fires ten times a second; keeps the worst delays of the last minute, and of all time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._delays = Maxima()
        self._clock = loop.clock if isinstance(loop, MeasuredLoop) else None

    def start(self) -> None:
        """Begin to measure: what was before, the start included, does not count."""
        self._delays = Maxima()
        if self._clock is not None:
            self._clock.reset()
        self._schedule()

    def stop(self) -> None:
        """End measuring."""
        if self._timer is not None:
            self._timer.cancel()

    @property
    def recent_worst_s(self) -> float:
        """The worst delay of a timer within the last minute, whatever the cause."""
        return self._delays.recent(self._loop.time())

    @property
    def worst_s(self) -> float:
        """The worst delay of a timer since the start, whatever the cause."""
        return self._delays.worst

    @property
    def recent_turn_s(self) -> float:
        """The loop's own worst delay within the last minute: its longest turn."""
        return 0.0 if self._clock is None else self._clock.turns.recent(time.perf_counter())

    @property
    def longest_turn_s(self) -> float:
        """The loop's own worst delay since the start; turns under 4 ms are not looked at."""
        return 0.0 if self._clock is None else self._clock.turns.worst

    @property
    def late_total(self) -> int:
        """How many turns took more than 20 ms."""
        return 0 if self._clock is None else self._clock.late_total

    def _schedule(self) -> None:
        self._due = self._loop.time() + PROBE_S
        self._timer = self._loop.call_at(self._due, self._fire)

    def _fire(self) -> None:
        now = self._loop.time()
        self._delays.add(now, max(now - self._due, 0.0))
        self._schedule()
