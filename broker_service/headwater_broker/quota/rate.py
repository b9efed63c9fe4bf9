"""A rate over the last windows, as quotas measure it. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Windows:
    """Over what a rate is measured: the last `count` windows, the present one among them."""

    count: int = 11
    """quota.window.num, and those of replication. and alter.log.dirs.replication."""
    seconds: float = 1.0
    """quota.window.size.seconds, and those of replication. and alter.log.dirs.replication."""


class WindowedRate:
    """Bytes per second over the last windows (Kafka's Rate).

    Windows that have not been yet count as empty ones: a burst after a silence is within the rate
    as long as it would be, spread over all windows.
    """

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._samples: deque[list[float]] = deque()
        """[when it began, amount], oldest first."""
        self._total = 0.0

    def record(self, amount: float, now: float) -> None:
        """So much passed; `now` in monotonic seconds."""
        if not self._samples or now - self._samples[-1][0] >= self._windows.seconds:
            self._samples.append([now, 0.0])
        self._samples[-1][1] += amount
        self._total += amount
        self._forget(now)

    def per_second(self, now: float) -> float:
        """The rate now."""
        self._forget(now)
        if not self._samples:
            return 0.0
        return self._total / self._span_s(now)

    def delay_s(self, per_second: float, now: float) -> float:
        """How long nothing may pass until the rate is down to this one; at most 0: it is."""
        self._forget(now)
        return self._total / per_second - self._span_s(now) if self._samples else 0.0

    def _span_s(self, now: float) -> float:
        least = (self._windows.count - 1) * self._windows.seconds
        return max(now - self._samples[0][0], least, self._windows.seconds)

    def _forget(self, now: float) -> None:
        oldest = now - self._windows.count * self._windows.seconds
        while self._samples and self._samples[0][0] <= oldest:
            self._total -= self._samples.popleft()[1]


class SimpleRate(WindowedRate):
    """Bytes per second since the oldest kept window began, at least one window (Kafka's SimpleRate).

    Windows before the first amount do not count: a burst after a silence exceeds the rate at once.
    """

    def _span_s(self, now: float) -> float:
        return max(now - self._samples[0][0], self._windows.seconds)
