"""Accepted connections that wait while the broker has `max.connections` (KIP-402).

Kafka's acceptor stops, and the backlog of its socket holds them. Here they are accepted, and
nothing is read from them until they get a place, in the order in which they came.
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


class AcceptQueue:
    """The waiting connections of one listener."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        has_place: Callable[[], bool],
        serve: Callable[[], asyncio.BaseProtocol],
        waiting_max: int = WAITING_MAX,
    ) -> None:
        """`has_place`: one more connection may be served. `serve` makes the protocol that serves
        it."""
        self._loop = loop
        self._waiting = OrderedSet[QueuedConnection]()
        self._has_place = has_place
        self._serve = serve
        self._waiting_max = waiting_max
        self._is_closed = False
        self._is_full = False
        """Logged already."""

    def __len__(self) -> int:
        return len(self._waiting)

    def accept(self, connection: QueuedConnection) -> None:
        """Serve a new connection now, or when a place is free."""
        if not self._waiting and not self._is_closed and self._has_place():
            self._begin(connection)
        elif self._is_closed:
            connection.transport.abort()
        elif len(self._waiting) >= self._waiting_max:
            if not self._is_full:
                count = self._waiting_max
                logger.warning("new connections are closed: %d wait for a place", count)
            self._is_full = True
            connection.transport.abort()
        else:
            if not self._waiting:
                logger.warning("new connections wait: there are as many as max.connections allows")
            self._is_full = False
            self._waiting.add(connection)
            # Not within connection_made: the first releases of Python 3.11 would read all the same.
            self._loop.call_soon(self._pause, connection)

    def discard(self, connection: QueuedConnection) -> None:
        """A waiting connection is gone."""
        self._waiting.discard(connection)

    def serve_waiting(self) -> None:
        """Serve as many waiting connections as there are places: one was freed, or the limit was
        changed."""
        while self._waiting and self._has_place():
            connection = next(iter(self._waiting))
            self._waiting.discard(connection)
            self._begin(connection)

    def close(self) -> None:
        """Close the waiting connections; serve none any more."""
        self._is_closed = True
        for connection in list(self._waiting):
            self._waiting.discard(connection)
            connection.transport.abort()

    def _pause(self, connection: QueuedConnection) -> None:
        if connection in self._waiting:
            connection.transport.pause_reading()

    def _begin(self, connection: QueuedConnection) -> None:
        transport, protocol = connection.transport, self._serve()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        if not transport.is_reading():
            transport.resume_reading()


class QueuedConnection(asyncio.Protocol):
    """One accepted socket that may have to wait for a place."""

    def __init__(self, queue: AcceptQueue) -> None:
        self.transport: asyncio.Transport
        self._queue = queue

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accepted."""
        self.transport = cast(asyncio.Transport, transport)
        self._queue.accept(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Closed while it waited."""
        self._queue.discard(self)
