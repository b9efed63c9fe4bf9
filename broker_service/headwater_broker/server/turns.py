"""How long all client connections together may work in one turn of the loop."""

from __future__ import annotations

import asyncio

TURN_S = 0.002
"""What else the loop owes (control calls, heartbeats, timers) waits for this long, and for the
request that is at work then: not for one request of every busy connection."""


class Turn:
    """Shared by the connections of a listener: whoever finds it used up goes on in the next one.

    Held connections are queued by `loop.call_soon`, so they come first, in their order, and before
    what has arrived meanwhile.
    """

    __slots__ = ("_ends", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._ends = 0.0

    def has_time(self) -> bool:
        """False when this turn's time is used up."""
        now = self._loop.time()
        if self._ends:
            return now < self._ends
        self._ends = now + TURN_S
        self._loop.call_soon(self._is_over)
        return True

    def _is_over(self) -> None:
        """Called first of all in the next turn."""
        self._ends = 0.0
