"""The budget of a listener's connections for one iteration of the event loop (a turn).

A turn has a time budget for their requests. Its replies are written together when it ends, except
in a quiet turn, whose one client should not wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Protocol

from headwater_broker.replica.delayed_operations import Purgatories

TURN_S = 0.002
"""Control calls, heartbeats and timers wait for requests this long, plus the request that is being
handled when the time ends, plus the writes that follow: not for one request of every busy
connection."""
QUIET_S = 0.0002
"""A turn is quiet when the loop slept this long before it: no other replies can join its own.
(The loop's last turn counts, whatever it was for: a timer that fired hides a quiet turn.)"""
TIMED_EVERY_S = 0.005
"""Requests are timed in one turn of every so long: every turn while there are few."""
TIMED_PER_TURN = 8
"""At most so many requests of such a turn. Timing then costs half a percent of the time."""

logger = logging.getLogger(__name__)


class LoopTurns(Protocol):
    """The turns of an event loop."""

    @property
    def number(self) -> int:
        """Number of the present turn."""
        ...

    @property
    def ended_s(self) -> float:
        """When the turn before this one ended, by the loop's clock."""
        ...

    @property
    def began_s(self) -> float:
        """When this turn began."""
        ...

    def at_end(self, callback: Callable[[], None], /) -> object:
        """Call `callback` once, when this turn ends."""
        ...


class TurnCounter:
    """The turns of a loop that does not count them itself: a turn begins with its first query."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._number = 0
        self._is_counted = False
        self.ended_s = self.began_s = 0.0
        self.at_end = loop.call_soon

    @property
    def number(self) -> int:
        """Number of the present turn."""
        if not self._is_counted:
            self._is_counted = True
            self.began_s = self._loop.time()
            self._loop.call_soon(self._turn_ended)
        return self._number

    def _turn_ended(self) -> None:
        self._is_counted = False
        self._number += 1
        self.ended_s = self._loop.time()


class ReadyConnection(Protocol):
    """A connection with replies that can be written."""

    def flush_ready(self) -> None:
        """Write the replies that are ready and in order."""
        ...

    def go_on(self) -> None:
        """Handle the requests that were put off to this turn."""
        ...

    def close(self, reason: str) -> None:
        """Close for `reason`."""
        ...


class TurnBudget:
    """The time budget and the unwritten replies of one turn, for all connections of a listener.

    A connection that finds the budget used up goes on in the next turn. Such connections come first
    there, in their order, before what has arrived meanwhile; those that find no time again keep
    their place. One handle stands for all: with one each, a hundred busy clients spent more on
    queueing than on requests.
    """

    __slots__ = (
        "_call_soon", "_deadline", "_goes_on", "_number", "_put_off", "_quiet_s", "_time",
        "_timed_at", "_turn_s", "_turns", "_unwritten", "_woken", "is_quiet", "to_time",
    )  # fmt: skip

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        turn_s: float = TURN_S,
        quiet_s: float = QUIET_S,
    ) -> None:
        self._time = loop.time
        self._call_soon = loop.call_soon
        self._put_off: deque[ReadyConnection] = deque()
        self._goes_on = False
        """True while a handle of the next turn is to go on with them."""
        self._turns: LoopTurns = getattr(loop, "turns", None) or TurnCounter(loop)
        self._turn_s = turn_s
        self._quiet_s = quiet_s
        self._number = -1
        self._deadline = 0.0
        self.is_quiet = False
        """True while the first connection of a quiet turn is handled."""
        self.to_time = 0
        """How many more requests of this turn are timed."""
        self._timed_at = 0.0
        self._woken: list[ReadyConnection] | None = None
        self._unwritten: list[ReadyConnection] = []

    @property
    def number(self) -> int:
        """Number of the present turn."""
        return self._number

    @property
    def began_s(self) -> float:
        """When the present turn began, by the loop's clock."""
        return self._turns.began_s

    def has_time(self) -> bool:
        """False when this turn's time is used up."""
        now, turns = self._time(), self._turns
        number = turns.number
        if number == self._number:
            self.is_quiet = False
            return now < self._deadline
        self._number = number
        self.is_quiet = turns.began_s - turns.ended_s >= self._quiet_s
        self._deadline = now + self._turn_s
        if now >= self._timed_at:
            self._timed_at = now + TIMED_EVERY_S
            self.to_time = TIMED_PER_TURN
        else:
            self.to_time = 0
        return True

    def put_off(self, connection: ReadyConnection) -> None:
        """Let this connection go on in the next turn."""
        self._put_off.append(connection)
        if not self._goes_on:
            self._goes_on = True
            self._call_soon(self._go_on)

    def _go_on(self) -> None:
        put_off = self._put_off
        try:
            for _ in range(len(put_off)):  # those that these add belong to the next turn
                if self._number == self._turns.number and self._time() >= self._deadline:
                    break
                put_off.popleft().go_on()
        finally:
            self._goes_on = bool(put_off)
            if put_off:
                self._call_soon(self._go_on)

    def flush_at_end(self, connection: ReadyConnection) -> None:
        """Write the replies of this connection when the turn ends.

        Each write wakes a client, which may cost more than the request. The second write finds the
        client's machine awake.
        """
        if not self._unwritten:
            self._turns.at_end(self._flush_all)
        self._unwritten.append(connection)

    def _flush_all(self) -> None:
        unwritten, self._unwritten = self._unwritten, []
        for connection in unwritten:
            try:
                connection.flush_ready()
            except Exception as error:  # the other connections still get their replies
                logger.exception("replies of a turn failed")
                connection.close(f"internal error: {error!r}")

    def wake_some(self, purgatories: Purgatories) -> None:
        """Complete a few delayed operations before the reply to the request that completed them.

        That reply wakes its client, for which consumers would have to wait (a tenth of their
        latency). The other operations are completed in the next turn. In turns that are not quiet
        all are: one reply then carries what several requests brought.
        """
        woken: list[ReadyConnection] = []
        self._woken = woken
        try:
            purgatories.fetch.wake_few()
            purgatories.produce.wake_few()
        finally:
            self._woken = None
        for connection in woken:
            connection.flush_ready()

    def reply_resolved(self, connection: ReadyConnection) -> None:
        """A parked reply of this connection is ready."""
        if self._woken is not None:
            self._woken.append(connection)
