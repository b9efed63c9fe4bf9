"""Time as a port. Real: `headwater.system.SystemClock`; double: `headwater.testing.clocks`.

Timers are those of the running asyncio loop (`call_later`). The simulator runs the same code on a
loop with virtual time.
"""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Wall clock and monotonic clock. They neither block nor raise."""

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC; may step backwards."""
        ...

    def monotonic(self) -> float:
        """Seconds since an arbitrary point; never steps backwards."""
        ...


class FineClock(Clock, Protocol):
    """A clock for code that reads it at each record."""

    def now_s(self) -> float:
        """Seconds since 1970-01-01 UTC, with their fraction; may step backwards."""
        ...
