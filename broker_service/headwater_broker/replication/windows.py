"""A rate over the last windows, as quotas measure it. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Windows:
    """Over what a rate is measured: the last `count` windows, the present one among them."""

    count: int = 11
    """replication.quota.window.num, alter.log.dirs.replication.quota.window.num."""
    seconds: float = 1.0
    """replication.quota.window.size.seconds, alter.log.dirs...."""


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
        least = (self._windows.count - 1) * self._windows.seconds
        return self._total / max(now - self._samples[0][0], least, self._windows.seconds)

    def _forget(self, now: float) -> None:
        oldest = now - self._windows.count * self._windows.seconds
        while self._samples and self._samples[0][0] <= oldest:
            self._total -= self._samples.popleft()[1]
