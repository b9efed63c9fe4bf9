"""Delays of the event loop: its own, apart from those that the machine causes.

There are two measures, as a timer that fires late says nothing about the cause:

- *delay*: how late a timer fires. On a machine with more work than cores most of it is the wait for
  a core, which no broker can avoid.
- *turn*: how long the loop was away from its selector at a time; every request waits at least that
  long. Subtracted is the time in which the thread was runnable without a core (the kernel's
  run-queue delay) and, when the thread never slept in the turn, all time that is not its CPU time,
  as a hypervisor had the core then. CPU time, waits for a disk and waits for the interpreter's lock
  remain. The broker's limits are on this measure.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import threading
from collections import deque
from collections.abc import Callable
from time import monotonic  # noqa: TID251 - what asyncio's loops go by

PROBE_S = 0.1
"""Interval of the samples of timer delays. A sample wakes an idle loop, which costs ten times as
much as on a busy one."""
WINDOW = 60
"""How many one-second values are kept."""
WARN_S = 0.02
"""A turn beyond this stalls requests visibly (tests fail above it)."""
LONG_TURN_S = 0.004
"""Only turns longer than this are measured with the kernel's counters."""
WAITED_FRESH_S = 0.01
"""The run-queue delay at the beginning of a long turn was read at most this long before."""
FRESH_S = 0.001
"""Interval of the reads of the thread's CPU time and context switches (0.7 us each)."""
SLEPT_S = 1e-5
"""They are also read after each stay in the selector longer than this. The thread may have slept
there, which is no wait of the turn, or been preempted, or received many events; only the kernel
knows."""

logger = logging.getLogger(__name__)

_used = resource.getrusage
_THREAD = getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)


def own_seconds(held: float, cpu: float, waited: float, sleeps: int) -> float:
    """The part of a turn of `held` seconds that the loop itself caused.

    `cpu`: CPU seconds; `waited`: run-queue delay; `sleeps`: voluntary context switches, such as a
    wait for a disk or a lock. Without a sleep only the CPU time is the thread's own.
    """
    return max(held - waited, cpu) if sleeps else cpu


class RunQueue:
    """Seconds for which the calling thread has waited for a core; 0 where that is not known."""

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
        """Add a value measured at `now`."""
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


class TurnClock:
    """Measures the turns of the loop, and has the callbacks for the end of a turn.

    Only `runtime.event_loop` sets the times of turns.
    """

    def __init__(self) -> None:
        self.number = 0
        """Number of the turn."""
        self.ended_s = self.began_s = monotonic()
        """End of the last turn and beginning of this one, by the loop's clock."""
        self.idle_s = 0.0
        """Seconds that the loop has waited in its selector with nothing else to do."""
        self.ends: list[Callable[[], object]] = []
        """Callbacks for the end of this turn."""
        self._run_queue: RunQueue | None = None
        self._waited = 0.0
        self._waited_until = 0.0
        self._used = _used(_THREAD)
        self.fresh_until = 0.0
        """Until then the last read of the thread's CPU time is recent enough."""
        self.longest = Maxima()
        self.late_total = 0

    def reset(self) -> None:
        """Begin to measure, on the loop's thread; earlier turns do not count."""
        if self._run_queue is None:
            self._run_queue = RunQueue()
        self.began_s = monotonic()
        self._sample_use()
        self.longest = Maxima()
        self.late_total = 0
        self._sample_queue()

    def at_end(self, callback: Callable[[], object]) -> None:
        """Call at the end of this turn. `call_soon` would need a turn more, which would double the
        turns of a broker with one busy client."""
        self.ends.append(callback)

    def call_ends(self) -> None:
        """Run the callbacks; those that they add belong to the next turn."""
        callbacks, self.ends = self.ends, []
        for callback in callbacks:
            try:
                callback()
            except Exception:  # it would end the loop
                logger.exception("a callback at the end of a turn failed")

    def note_long_turn(self) -> None:
        """Measure the turn that ends now, which took longer than `LONG_TURN_S`."""
        if self._run_queue is None:
            return
        held = self.ended_s - self.began_s
        before, after, waited = self._used, _used(_THREAD), self._waited
        self._sample_queue()
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        cpu = min(used, held)  # the last read may be a little older than the turn
        sleeps = after.ru_nvcsw - before.ru_nvcsw
        own = own_seconds(held, cpu, max(self._waited - waited, 0.0), sleeps)
        self.longest.add(self.ended_s, own)
        if own > WARN_S:
            self.late_total += 1
            logger.warning(
                "a turn of the event loop took %.1f ms: %.1f ms of CPU time, %d waits for a disk "
                "or a lock, %d page faults (%d from disk)",
                own * 1000, cpu * 1000, sleeps,
                after.ru_minflt - before.ru_minflt + after.ru_majflt - before.ru_majflt,
                after.ru_majflt - before.ru_majflt,
            )  # fmt: skip

    def sample(self) -> None:
        """Read the thread's counters at the beginning of a turn, as the last read is too old."""
        self._sample_use()
        if self.began_s >= self._waited_until:
            self._sample_queue()

    def close(self) -> None:
        """Release the descriptor."""
        run_queue, self._run_queue = self._run_queue, None
        if run_queue is not None:
            run_queue.close()

    def _sample_use(self) -> None:
        self._used = _used(_THREAD)
        self.fresh_until = self.began_s + FRESH_S

    def _sample_queue(self) -> None:
        """Read the run-queue delay, to subtract it after a long turn."""
        if self._run_queue is not None:
            self._waited = self._run_queue.waited_s()
            self._waited_until = monotonic() + WAITED_FRESH_S


class LagProbe:
    """Samples the loop ten times a second; the worst delays of the last minute and since start."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._delays = Maxima()
        self._idle: deque[tuple[float, float]] = deque(maxlen=WINDOW)
        """(time, seconds idle until then) once a second."""
        turns = getattr(loop, "turns", None)
        self._turns = turns if isinstance(turns, TurnClock) else None

    def start(self) -> None:
        """Begin to measure; delays before, as during the start, do not count."""
        self._delays = Maxima()
        self._idle.clear()
        if self._turns is not None:
            self._turns.reset()
        self._schedule()

    def stop(self) -> None:
        """End measuring."""
        if self._timer is not None:
            self._timer.cancel()

    @property
    def recent_worst_s(self) -> float:
        """The worst delay of a timer within the last minute, from any cause."""
        return self._delays.recent(self._loop.time())

    @property
    def worst_s(self) -> float:
        """The worst delay of a timer since the start, from any cause."""
        return self._delays.worst

    @property
    def recent_turn_s(self) -> float:
        """The longest time that the loop was busy at a stretch within the last minute."""
        return 0.0 if self._turns is None else self._turns.longest.recent(monotonic())

    @property
    def longest_turn_s(self) -> float:
        """The same since the start; times under 4 ms are not measured."""
        return 0.0 if self._turns is None else self._turns.longest.worst

    @property
    def late_total(self) -> int:
        """How many turns took more than 20 ms."""
        return 0 if self._turns is None else self._turns.late_total

    @property
    def idle_s(self) -> float:
        """Seconds that the loop waited for something to do; 0 where asyncio's own turn runs."""
        return 0.0 if self._turns is None else self._turns.idle_s

    @property
    def recent_idle_share(self) -> float:
        """The share of the last minute that the loop waited for something to do (Kafka's
        RequestHandlerAvgIdlePercent and NetworkProcessorAvgIdlePercent)."""
        if not self._idle:
            return 0.0
        since, idle_s = self._idle[0]
        elapsed = self._loop.time() - since
        return min((self.idle_s - idle_s) / elapsed, 1.0) if elapsed > 0 else 0.0

    def _schedule(self) -> None:
        self._due = self._loop.time() + PROBE_S
        self._timer = self._loop.call_at(self._due, self._fire)

    def _fire(self) -> None:
        now = self._loop.time()
        self._delays.add(now, max(now - self._due, 0.0))
        if not self._idle or now - self._idle[-1][0] >= 1.0:
            self._idle.append((now, self.idle_s))
        self._schedule()
