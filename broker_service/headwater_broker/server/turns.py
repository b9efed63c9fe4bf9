"""What the client connections of a listener share of one turn of the loop: its time, and the few
replies that one's requests make ready for others."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from headwater_broker.api.services import Purgatories

TURN_S = 0.002
"""What else the loop owes (control calls, heartbeats, timers) waits for this long, for the request
that is at work then, and for the writes that follow: not for one request of every busy
connection."""
QUIET_S = 0.0002
"""A turn that comes so long after the last one is quiet: there is nothing to join replies with."""

logger = logging.getLogger(__name__)


class AtEnd(Protocol):
    """A loop's way to call when a turn is over: its `at_turn_end`, or just `call_soon`."""

    def __call__(self, callback: Callable[[], None], /) -> object:
        """Call `callback` once."""
        ...


class Woken(Protocol):
    """A connection with a reply that has become ready."""

    def flush_ready(self) -> None:
        """Write what can go out."""
        ...

    def close(self, reason: str) -> None:
        """Close for `reason`."""
        ...


class Turn:
    """Shared by the connections of a listener: whoever finds it used up goes on in the next one.

    Held connections are queued by `loop.call_soon`, so they come first, in their order, and before
    what has arrived meanwhile.
    """

    __slots__ = ("_at_end", "_ended", "_ends", "_loop", "_unsent", "_woken", "is_quiet")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._at_end: AtEnd = getattr(loop, "at_turn_end", loop.call_soon)
        self._ended = -QUIET_S
        self._ends = 0.0
        self.is_quiet = False
        """The first connection of a quiet turn is at work."""
        self._woken: list[Woken] | None = None
        self._unsent: list[Woken] = []

    def has_time(self) -> bool:
        """False when this turn's time is used up."""
        now = self._loop.time()
        if self._ends:
            self.is_quiet = False
            return now < self._ends
        self.is_quiet = now - self._ended >= QUIET_S
        self._ends = now + TURN_S
        self._at_end(self._is_over)
        return True

    def _is_over(self) -> None:
        """Called last of all in a turn, or first of all in the next one."""
        self._ends = 0.0
        self._ended = self._loop.time()
        unsent = self._unsent
        if unsent:
            self._unsent = []
            for connection in unsent:
                try:
                    connection.flush_ready()
                except Exception as error:  # the others wait for theirs
                    logger.exception("replies of a turn failed")
                    connection.close(f"internal error: {error!r}")

    def flush_at_end(self, connection: Woken) -> None:
        """Write the replies of this connection once all that this turn has are at hand.

        Each write wakes a client, which may cost more than the request; the second one finds the
        client's machine awake. It is not for quiet turns."""
        self._unsent.append(connection)

    def answer_few(self, purgatories: Purgatories) -> None:
        """Answer a few of those who waited for what one connection has just done, before it gets
        its own replies: to write these wakes its client, for which the consumers would have to
        wait (a tenth of their latency). All others are answered in the next turn; in turns that
        are not quiet everybody is, as one reply then has what several requests brought."""
        woken: list[Woken] = []
        self._woken = woken
        try:
            purgatories.fetch.wake_few()
            purgatories.produce.wake_few()
        finally:
            self._woken = None
        for connection in woken:
            connection.flush_ready()

    def is_ready(self, connection: Woken) -> None:
        """A parked reply of this connection was resolved."""
        if self._woken is not None:
            self._woken.append(connection)
