"""Connections that come while `max.connections` are there: they wait for a place, as Kafka's do.

Kafka's acceptor stands still, and its backlog holds the others. Here they are accepted, and nothing
of them is read or answered until they get a place, in the order in which they came.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import cast

from headwater.ordered import OrderedSet

WAITING_MAX = 512
"""Connections beyond these are closed: each costs a file descriptor. As a listener's backlog."""

logger = logging.getLogger(__name__)


class Arrivals:
    """Those of one listener. `has_place` says whether one more is taken; `serve` makes what reads
    and answers it."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        has_place: Callable[[], bool],
        serve: Callable[[], asyncio.BaseProtocol],
    ) -> None:
        self.loop = loop
        self.waiting = OrderedSet[Arrival]()
        self._has_place = has_place
        self._serve = serve
        self._is_closed = False
        self._is_full = False
        """That it is has been logged."""

    def came(self, arrival: Arrival) -> None:
        """Serve it now, or when its turn comes."""
        if not self.waiting and not self._is_closed and self._has_place():
            self._begin(arrival)
        elif self._is_closed:
            arrival.transport.abort()
        elif len(self.waiting) >= WAITING_MAX:
            if not self._is_full:
                logger.warning("new connections are closed: %d wait for a place", WAITING_MAX)
            self._is_full = True
            arrival.transport.abort()
        else:
            if not self.waiting:
                logger.warning("new connections wait: there are as many as max.connections allows")
            self._is_full = False
            self.waiting.add(arrival)
            # Not within connection_made: the first releases of Python 3.11 would read all the same.
            self.loop.call_soon(self._hold, arrival)

    def look(self) -> None:
        """A place may be free, or the limit another: serve who waited longest."""
        while self.waiting and self._has_place():
            arrival = next(iter(self.waiting))
            self.waiting.discard(arrival)
            self._begin(arrival)

    def close(self) -> None:
        """Nobody is served any more."""
        self._is_closed = True
        for arrival in list(self.waiting):
            self.waiting.discard(arrival)
            arrival.transport.abort()

    def _hold(self, arrival: Arrival) -> None:
        if arrival in self.waiting:
            arrival.transport.pause_reading()

    def _begin(self, arrival: Arrival) -> None:
        transport, protocol = arrival.transport, self._serve()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        if not transport.is_reading():
            transport.resume_reading()


class Arrival(asyncio.Protocol):
    """One accepted socket without a place."""

    def __init__(self, arrivals: Arrivals) -> None:
        self.transport: asyncio.Transport
        self._arrivals = arrivals

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accepted."""
        self.transport = cast(asyncio.Transport, transport)
        self._arrivals.came(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Closed before its turn came."""
        self._arrivals.waiting.discard(self)
