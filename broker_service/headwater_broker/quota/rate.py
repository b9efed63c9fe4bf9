"""Rates over a sliding series of windows, as quotas measure them (Kafka's Rate). Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Windows:
    """A rate is measured over the last `count` windows, the present one included."""

    count: int = 11
    """quota.window.num; also with the prefixes replication. and alter.log.dirs.replication."""
    seconds: float = 1.0
    """quota.window.size.seconds; also with the prefixes above."""


class WindowedRate:
    """An amount per second over the last windows.

    Windows before the first record count as empty ones: a burst after a silence is within the rate
    if it would be when spread over all windows.
    """

    def __init__(self, windows: Windows) -> None:
        self.windows = windows
        self._samples: deque[list[float]] = deque()
        """[when it began, amount], oldest first."""
        self._total = 0.0

    def record(self, amount: float, now: float) -> None:
        """Count `amount` at `now`, in monotonic seconds."""
        if not self._samples or now - self._samples[-1][0] >= self.windows.seconds:
            self._samples.append([now, 0.0])
        self._samples[-1][1] += amount
        self._total += amount
        self._forget(now)

    def per_second(self, now: float) -> float:
        """The rate at `now`."""
        amount, span_s = self.amount_and_span_s(now)
        return amount / span_s

    def amount_and_span_s(self, now: float) -> tuple[float, float]:
        """The amount of the last windows at `now`, and the seconds that it is divided by."""
        self._forget(now)
        return (self._total, self._span_s(now)) if self._samples else (0.0, self.windows.seconds)

    def _span_s(self, now: float) -> float:
        least = (self.windows.count - 1) * self.windows.seconds
        return max(now - self._samples[0][0], least, self.windows.seconds)

    def _forget(self, now: float) -> None:
        oldest = now - self.windows.count * self.windows.seconds
        while self._samples and self._samples[0][0] <= oldest:
            self._total -= self._samples.popleft()[1]


class SimpleRate(WindowedRate):
    """Bytes per second since the oldest kept window began, or over one window (Kafka's SimpleRate).

    Windows before the first amount do not count: a burst after a silence exceeds the rate at once.
    """

    def _span_s(self, now: float) -> float:
        return max(now - self._samples[0][0], self.windows.seconds)
