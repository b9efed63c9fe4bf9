"""Test doubles of `headwater.clock` and `headwater.entropy`: clocks to move, seeded randomness."""

from __future__ import annotations

from random import Random  # noqa: TID251 - seeded, never the global generator
from uuid import UUID

from headwater.system import SystemClock

EPOCH_MS = 1_700_000_000_000


class ManualClock:
    """A clock that stands still until a test advances it."""

    def __init__(self, now_ms: int = EPOCH_MS) -> None:
        self._now_ms = now_ms
        self._monotonic = 0.0

    def now_ms(self) -> int:
        """The wall time."""
        return self._now_ms

    def monotonic(self) -> float:
        """Seconds since this clock was created."""
        return self._monotonic

    def advance(self, ms: int) -> None:
        """Advance wall and monotonic time."""
        self._now_ms += ms
        self._monotonic += ms / 1000

    def step_wall(self, ms: int) -> None:
        """Change the wall clock only, as an operator or NTP does."""
        self._now_ms += ms


class MovableClock:
    """The system's time, and what a test adds to it. Several threads may use it."""

    def __init__(self) -> None:
        self._system = SystemClock()
        self.ahead_ms = 0
        """How far it was moved."""

    def now_ms(self) -> int:
        """The wall time."""
        return self._system.now_ms() + self.ahead_ms

    def monotonic(self) -> float:
        """Seconds since an arbitrary time."""
        return self._system.monotonic() + self.ahead_ms / 1000

    def advance(self, ms: int) -> None:
        """Move wall and monotonic time ahead."""
        if ms < 0:
            raise ValueError(f"a clock moves ahead only, not by {ms} ms")
        self.ahead_ms += ms


class SeededEntropy:
    """Random values that repeat for the same seed."""

    def __init__(self, seed: int = 0) -> None:
        self._random = Random(seed)

    def uuid(self) -> UUID:
        """A version-4 UUID."""
        return UUID(int=self._random.getrandbits(128), version=4)

    def uniform(self, low: float, high: float) -> float:
        """A float in [low, high]."""
        return self._random.uniform(low, high)

    def randbytes(self, size: int) -> bytes:
        """`size` bytes."""
        return self._random.randbytes(size)
