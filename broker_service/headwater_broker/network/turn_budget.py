"""What the client connections of a listener share of one turn of the loop: its time, and the few
replies that one's requests make ready for others."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from headwater_broker.replica.delayed_operations import Purgatories

TURN_S = 0.002
"""What else the loop owes (control calls, heartbeats, timers) waits for this long, for the request
that is at work then, and for the writes that follow: not for one request of every busy
connection."""
QUIET_S = 0.0002
"""A turn that comes so long after the last one is quiet: there is nothing to join replies with.
(The loop's last one, whatever it was for: a timer that fired just before hides a quiet one.)"""
TIMED_EVERY_S = 0.005
"""In one turn per so long requests are timed: every one while there are few."""
TIMED_PER_TURN = 8
"""Of such a turn's requests at most so many. Together these cost half a percent of the time."""

logger = logging.getLogger(__name__)


class Turns(Protocol):
    """A loop's turns."""

    @property
    def number(self) -> int:
        """Of this turn: the next one has another."""
        ...

    @property
    def ended_s(self) -> float:
        """When the turn before this one ended, by the loop's clock."""
        ...

    @property
    def began_s(self) -> float:
        """When this one began."""
        ...

    def at_end(self, callback: Callable[[], None], /) -> object:
        """Call `callback` once, when this turn is over."""
        ...


class CountedTurns:
    """The turns of a loop that does not count them: known from the first question in each."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._number = 0
        self._is_watched = False
        self.ended_s = self.began_s = 0.0
        self.at_end = loop.call_soon

    @property
    def number(self) -> int:
        """Of this turn."""
        if not self._is_watched:
            self._is_watched = True
            self.began_s = self._loop.time()
            self._loop.call_soon(self._over)
        return self._number

    def _over(self) -> None:
        self._is_watched = False
        self._number += 1
        self.ended_s = self._loop.time()


class Woken(Protocol):
    """A connection with a reply that has become ready."""

    def flush_ready(self) -> None:
        """Write what can go out."""
        ...

    def close(self, reason: str) -> None:
        """Close for `reason`."""
        ...


class TurnBudget:
    """Shared by the connections of a listener: whoever finds it used up goes on in the next one.

    Held connections are queued by `loop.call_soon`, so they come first, in their order, and before
    what has arrived meanwhile.
    """

    __slots__ = (
        "_ends",
        "_number",
        "_time",
        "_timed_at",
        "_turns",
        "_unsent",
        "_woken",
        "is_quiet",
        "to_time",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._time = loop.time
        self._turns: Turns = getattr(loop, "turns", None) or CountedTurns(loop)
        self._number = -1
        self._ends = 0.0
        self.is_quiet = False
        """The first connection of a quiet turn is at work."""
        self.to_time = 0
        """So many more requests of this turn are timed."""
        self._timed_at = 0.0
        self._woken: list[Woken] | None = None
        self._unsent: list[Woken] = []

    @property
    def number(self) -> int:
        """Of this turn of the loop: each has its own."""
        return self._number

    @property
    def began_s(self) -> float:
        """When this turn of the loop began."""
        return self._turns.began_s

    def has_time(self) -> bool:
        """False when this turn's time is used up."""
        now, turns = self._time(), self._turns
        number = turns.number
        if number == self._number:
            self.is_quiet = False
            return now < self._ends
        self._number = number
        self.is_quiet = turns.began_s - turns.ended_s >= QUIET_S
        self._ends = now + TURN_S
        if now >= self._timed_at:
            self._timed_at = now + TIMED_EVERY_S
            self.to_time = TIMED_PER_TURN
        else:
            self.to_time = 0
        return True

    def _send_unsent(self) -> None:
        unsent, self._unsent = self._unsent, []
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
        if not self._unsent:
            self._turns.at_end(self._send_unsent)
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
