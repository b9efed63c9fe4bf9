"""Limits of connections that are not authenticated yet: how many, from one address, for how long.

On listeners with TLS or SASL nothing is read from a connection before it has a place here, and it
gives the place back when it is authenticated. While others wait, a place is for a second only, and
the newest comes first: a client that means it needs milliseconds, and many silent ones do not keep
it out.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

CHECK_S = 0.1
"""Interval of the checks while there are connections here."""

logger = logging.getLogger(__name__)

MakeProtocol = Callable[[], asyncio.BaseProtocol]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnauthenticatedLimits:
    """The limits of one listener."""

    places: int = 1_000
    """Connections that are not authenticated."""
    places_per_host: int = 50
    place_s: float = 10.0
    """Time to authenticate; the connection is closed then."""
    contended_place_s: float = 1.0
    """The same while other connections wait."""
    waiting_max: int = 512
    """Connections beyond these push out the one that has waited longest: each costs a
    descriptor."""


class _Waiting(asyncio.Protocol):
    """An accepted socket without a place: nothing is read from it."""

    def __init__(self, owner: UnauthenticatedConnections) -> None:
        self.transport: asyncio.Transport
        self.host = ""
        self._owner = owner

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accepted."""
        self.transport = cast(asyncio.Transport, transport)
        self.host = host_of(transport.get_extra_info("peername"))
        self._owner.accept(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Closed while it waited."""
        self._owner.discard(self)


def host_of(peer: object) -> str:
    """The client's address; `peer` as the socket names it."""
    return str(peer[0]) if isinstance(peer, tuple) else "local"


class UnauthenticatedConnections:
    """Those of one listener."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        serve: MakeProtocol,
        limits: UnauthenticatedLimits | None = None,
    ) -> None:
        """`serve` makes the protocol of a connection that has got a place."""
        self._loop = loop
        self._serve = serve
        self.limits = limits or UnauthenticatedLimits()
        self._places: dict[asyncio.Transport, tuple[str, float]] = {}
        """Connection -> (host, when it got its place), the oldest first. The client's address and
        port are no key: a client chooses its port, also one that it has in use."""
        self._hosts: Counter[str] = Counter()
        self._waiting: deque[_Waiting] = deque()
        """The newest first."""
        self._check: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._places)

    @property
    def waiting(self) -> int:
        """How many connections wait for a place."""
        return len(self._waiting)

    def protocol(self) -> asyncio.BaseProtocol:
        """The protocol of a socket that is accepted now."""
        return _Waiting(self)

    def accept(self, connection: _Waiting) -> None:
        """Give a new connection a place, or let it wait."""
        if self._has_place(connection.host):
            self._begin(connection)
            return
        self._waiting.appendleft(connection)
        # Not within connection_made: the first releases of Python 3.11 would read all the same.
        self._loop.call_soon(self._pause, connection)
        if len(self._waiting) > self.limits.waiting_max:
            self._waiting[-1].transport.abort()
            self._waiting.pop()

    def discard(self, connection: _Waiting) -> None:
        """A waiting connection is gone."""
        if connection in self._waiting:
            self._waiting.remove(connection)

    def release(self, transport: asyncio.Transport) -> None:
        """A connection is authenticated, or gone: it needs its place no more."""
        place = self._places.pop(transport, None)
        if place is None:
            return
        host, _ = place
        self._hosts[host] -= 1
        if not self._hosts[host]:
            del self._hosts[host]
        self._serve_waiting()

    def close(self) -> None:
        """Close the connections that wait."""
        if self._check is not None:
            self._check.cancel()
            self._check = None
        for connection in tuple(self._waiting):
            connection.transport.abort()
        self._waiting.clear()

    def _has_place(self, host: str) -> bool:
        limits = self.limits
        return len(self._places) < limits.places and self._hosts[host] < limits.places_per_host

    def _serve_waiting(self) -> None:
        found = next(
            (
                one
                for one in self._waiting
                if self._has_place(one.host) and not one.transport.is_closing()
            ),
            None,
        )
        if found is not None:
            self._waiting.remove(found)
            self._begin(found)

    def _begin(self, connection: _Waiting) -> None:
        transport = connection.transport
        self._places[transport] = (connection.host, self._loop.time())
        self._hosts[connection.host] += 1
        if self._check is None:
            self._check = self._loop.call_later(CHECK_S, self._check_times)
        protocol = self._serve()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        if not transport.is_reading():
            transport.resume_reading()

    def _pause(self, connection: _Waiting) -> None:
        if connection in self._waiting and not connection.transport.is_closing():
            connection.transport.pause_reading()

    def _check_times(self) -> None:
        """Close the connections whose time is up, also those that are closing and wait for their
        client to read."""
        now, ended = self._loop.time(), []
        contended = {one.host for one in self._waiting}
        is_full = len(self._places) >= self.limits.places
        for transport, (host, since) in self._places.items():
            is_contended = is_full or host in contended
            time_s = self.limits.contended_place_s if is_contended else self.limits.place_s
            if now - since > time_s:
                logger.info("closing connection of %s: not authenticated in time", host)
                transport.abort()
                ended.append(transport)
            elif transport.is_closing() and not transport.get_write_buffer_size():
                ended.append(transport)
        for transport in ended:
            self.release(transport)
        self._check = None
        if self._places:
            self._check = self._loop.call_later(CHECK_S, self._check_times)
