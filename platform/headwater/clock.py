"""Time as a port. Real: `headwater.system.SystemClock`; double: `headwater.testing.clocks`.

Timers are the running asyncio loop's own (`call_later`); the simulator runs the same code on a
loop of virtual time.
"""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Wall clock and monotonic clock. Neither blocks, neither raises."""

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC; may step backwards."""
        ...

    def monotonic(self) -> float:
        """Seconds since an arbitrary point; never steps backwards."""
        ...
