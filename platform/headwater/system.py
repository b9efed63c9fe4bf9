"""The real clock and randomness. No other module may read them directly."""

from __future__ import annotations

import os
import random
import time
import uuid


class SystemClock:
    """`headwater.clock.FineClock` of this machine."""

    now_s = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)
    """Seconds of CLOCK_MONOTONIC."""

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""
        return time.time_ns() // 1_000_000


class SystemEntropy:
    """`headwater.entropy.Entropy` from the operating system."""

    def uuid(self) -> uuid.UUID:
        """A random UUID."""
        return uuid.uuid4()

    def uniform(self, low: float, high: float) -> float:
        """A float in [low, high]."""
        return random.uniform(low, high)

    def randbytes(self, size: int) -> bytes:
        """Random bytes."""
        return os.urandom(size)
