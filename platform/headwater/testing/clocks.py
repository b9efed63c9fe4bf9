"""A clock moved by hand and a seeded entropy: the doubles of `clock` and `entropy`."""

from __future__ import annotations

from random import Random  # noqa: TID251 - seeded, never the global generator
from uuid import UUID

EPOCH_MS = 1_700_000_000_000


class ManualClock:
    """Stands still until told. Wall and monotonic time advance together."""

    def __init__(self, now_ms: int = EPOCH_MS) -> None:
        self._now_ms = now_ms
        self._monotonic = 0.0

    def now_ms(self) -> int:
        """The wall time."""
        return self._now_ms

    def monotonic(self) -> float:
        """Seconds since this clock was made."""
        return self._monotonic

    def advance(self, ms: int) -> None:
        """Let time pass."""
        self._now_ms += ms
        self._monotonic += ms / 1000

    def step_wall(self, ms: int) -> None:
        """An operator (or NTP) sets the wall clock; monotonic time does not notice."""
        self._now_ms += ms


class SeededEntropy:
    """The same seed gives the same values: a failing run is a seed to paste."""

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
