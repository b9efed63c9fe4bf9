"""One listening port of the data plane and its connections."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any

from headwater.config.connection_limits import connection_overrides
from headwater.config.keys import Values
from headwater.config.quotas import CONNECTION_RATE
from headwater.errors import UsageError
from headwater.ordered import OrderedSet
from headwater_broker.api.context import Services
from headwater_broker.api.registry import ApiRow
from headwater_broker.network.accept_queue import Arrival, Arrivals
from headwater_broker.network.acceptor import (
    AcceptedConnection,
    Acceptor,
    GatedConnection,
    ServedRequests,
)
from headwater_broker.network.connection import Connection
from headwater_broker.network.connection_rates import ConnectionRates
from headwater_broker.network.turn_budget import TurnBudget
from headwater_broker.security.authentication_gate import (
    AUTHENTICATION_KEYS,
    UNAUTHENTICATED_REQUEST_BYTES_MAX,
    AuthenticationGate,
    GateActions,
)

BACKLOG = 512
SYSTEM_BUFFER = -1
"""socket.*.buffer.bytes: the system chooses, and adapts, a connection's buffers."""
ACCEPTS_PER_TURN = 32
"""asyncio accepts as many in one turn as it thinks the backlog holds."""
SWEEP_SHARE = 10
"""The idle sweep runs this often within connections.max.idle.ms."""
SWEEP_MIN_S = 0.01
SWEEP_MAX_S = 10.0
NEVER = 2**62
UNLIMITED = 2**31 - 1
"""Limits of connections, where nobody sets them."""

logger = logging.getLogger(__name__)


MakeConnection = Callable[[Acceptor], Connection]
"""Connection class of a listener's security protocol: it brings its transport and send queue."""


class Listener:
    """A listener by Kafka's meaning: name, host and port; it owns its connections."""

    def __init__(
        self,
        services: Services,
        rows: dict[int, ApiRow],
        loop: asyncio.AbstractEventLoop,
        *,
        name: str = "PLAINTEXT",
        make_connection: MakeConnection = Connection,
        requires_authentication: bool = False,
        request_bytes_max: int = 100 * 1024 * 1024,
        in_flight_max: int = 500,
        send_buffer_bytes: int = SYSTEM_BUFFER,
        receive_buffer_bytes: int = SYSTEM_BUFFER,
        idle_ms: int = 600_000,
        connections_max: int = UNLIMITED,
        connections_per_host_max: int = UNLIMITED,
        connections_of_host: Mapping[str, int] | None = None,
        connections_per_s: int = UNLIMITED,
    ) -> None:
        self.services = services
        self.rows = rows
        self.loop = loop
        self.name = name
        self.served = ServedRequests(rows, request_bytes_max)
        self._make_connection = make_connection
        self._requires_authentication = requires_authentication
        self.in_flight_max = in_flight_max
        self.tick = 0
        self.turn = TurnBudget(loop)
        self.port = 0
        self._buffers = (
            (socket.SO_SNDBUF, send_buffer_bytes),
            (socket.SO_RCVBUF, receive_buffer_bytes),
        )
        self._connections_max = connections_max
        self._per_host_max = connections_per_host_max
        self._of_host = connections_of_host or {}
        quotas = services.quotas
        self._rates = ConnectionRates(
            services.clock, quotas.windows, connections_per_s, quotas.connection_rate
        )
        idle_s = idle_ms / 1000 if idle_ms >= 0 else NEVER
        self._sweep_s = min(max(idle_s / SWEEP_SHARE, SWEEP_MIN_S), SWEEP_MAX_S)
        self._idle_ticks = max(int(idle_s / self._sweep_s), 1)
        self._connections = OrderedSet[AcceptedConnection]()
        self._leaving = OrderedSet[AcceptedConnection]()
        """Closed for the sake of max.connections, and not gone yet."""
        self._arrivals = Arrivals(loop, self._has_place, lambda: make_connection(self))
        self._hosts: Counter[str] = Counter()
        self._tasks = OrderedSet[asyncio.Task[None]]()
        self._server: asyncio.Server | None = None
        self._sweep_timer: asyncio.TimerHandle | None = None

    @property
    def connections(self) -> tuple[AcceptedConnection, ...]:
        """Open connections, oldest first."""
        return tuple(self._connections)

    def limit_connections(self, values: Values) -> None:
        """How many connections are taken from now on. Of those there, the idlest go until
        max.connections holds; the limits of an address are for new ones. Both as in Kafka."""
        self._connections_max = values.integer("max.connections")
        self._per_host_max = values.integer("max.connections.per.ip")
        self._of_host = connection_overrides(values.strings("max.connections.per.ip.overrides"))
        self._rates.limit = values.integer("max.connection.creation.rate")
        self._close_idlest(self._count() - self._connections_max)
        self._arrivals.look()

    def _count(self) -> int:
        """Connections of the whole broker, without those that this listener has told to go."""
        return self.services.meters.connections - len(self._leaving)

    def _has_place(self) -> bool:
        return self.services.meters.connections < self._connections_max

    def _close_idlest(self, excess: int) -> None:
        if excess <= 0:
            return
        there = [c for c in self._connections if c not in self._leaving]
        there.sort(key=lambda connection: connection.last_active_tick)
        logger.info("max.connections is less than there are: the %d idlest go", excess)
        for connection in there[:excess]:
            self._leaving.add(connection)
            connection.close(f"more than {self._connections_max} connections (max.connections)")

    def _protocol(self) -> asyncio.BaseProtocol:
        if self._connections_max >= UNLIMITED:
            return self._make_connection(self)
        return Arrival(self._arrivals)

    async def start(self, host: str, port: int) -> int:
        """`bind`, then `serve`; the port bound."""
        await self.bind(host, port)
        await self.serve()
        return self.port

    async def bind(self, host: str, port: int) -> int:
        """Take the port, accept nothing yet. Raises UsageError when it is taken or unknown."""
        try:
            self._server = await self.loop.create_server(
                self._protocol,
                host or None,
                port,
                backlog=ACCEPTS_PER_TURN,
                start_serving=False,
            )
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise UsageError(
                    f"port {port} on {host or 'all addresses'} is in use: "
                    "stop the process that holds it, or choose another port"
                ) from None
            raise UsageError(f"cannot listen on {host}:{port}: {error}") from None
        for listening in self._server.sockets:
            for option, size in self._buffers:
                if size != SYSTEM_BUFFER:  # accepted connections inherit it
                    listening.setsockopt(socket.SOL_SOCKET, option, size)
        self.port = self._server.sockets[0].getsockname()[1]
        return self.port

    async def serve(self) -> None:
        """Accept connections from now on."""
        if self._server is not None:
            await self._server.start_serving()
            for listening in self._server.sockets:
                if listening.fileno() < 0:
                    continue  # a loop of virtual time: nothing to deepen
                with socket.socket(fileno=os.dup(listening.fileno())) as raw:
                    raw.listen(BACKLOG)
        self._sweep_timer = self.loop.call_later(self._sweep_s, self._sweep)

    def stop_accepting(self) -> None:
        """Refuse new connections; those there stay."""
        if self._server is not None:
            self._server.close()
        self._arrivals.close()

    async def close(self) -> None:
        """Close the port and every connection."""
        self.stop_accepting()
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        for connection in list(self._connections):
            connection.close("shutting down")
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def guard(self, connection: GatedConnection) -> AuthenticationGate | None:
        """The gate of a new connection; None where no authentication is required."""
        if not self._requires_authentication:
            return None
        rows = {key: self.rows[key] for key in AUTHENTICATION_KEYS if key in self.rows}
        before = ServedRequests(rows, UNAUTHENTICATED_REQUEST_BYTES_MAX)
        actions = GateActions(
            serve_all=partial(connection.serve, self.served),
            serve_authentication=partial(connection.serve, before),
            serve_tokens=connection.serve_tokens,
            close_after_reply=connection.close_after_reply,
            call_later=self.loop.call_later,
        )
        return AuthenticationGate(actions)

    def admit(self, connection: AcceptedConnection) -> str:
        """Count a new connection; the reason to refuse it, or an empty text."""
        host = connection.session.host
        self._connections.add(connection)
        self._hosts[host] += 1
        meters = self.services.meters
        meters.connections += 1
        meters.connections_total += 1
        if meters.connections > self._connections_max:
            return f"more than {self._connections_max} connections (max.connections)"
        most = self._of_host.get(host, self._per_host_max)
        if self._hosts[host] > most:
            return f"more than {most} connections of {host} (max.connections.per.ip)"
        self._pace(connection)
        return ""

    def _pace(self, connection: AcceptedConnection) -> None:
        """Connections that come too fast wait (KIP-612); those of one address are closed then."""
        host, throttled = connection.session.host, self.services.quotas.throttled
        if delay_ms := self._rates.host_delay_ms(host):
            throttled[CONNECTION_RATE] += 1
            self._mute_new(connection, delay_ms)
            reason = f"connections of {host} come faster than its {CONNECTION_RATE} allows"
            self.loop.call_later(delay_ms / 1000, connection.close, reason)
        elif delay_ms := self._rates.delay_ms():
            throttled["max.connection.creation.rate"] += 1
            self._mute_new(connection, delay_ms)

    def _mute_new(self, connection: AcceptedConnection, delay_ms: int) -> None:
        """Not within `connection_made`: the first releases of Python 3.11 begin to read after it
        all the same. This comes before anything is read."""
        self.loop.call_soon(connection.mute, delay_ms)

    def forget(self, connection: AcceptedConnection) -> None:
        """A connection is gone."""
        if connection not in self._connections:
            return
        self._connections.discard(connection)
        self._leaving.discard(connection)
        self.services.meters.connections -= 1
        host = connection.session.host
        self._hosts[host] -= 1
        if not self._hosts[host]:
            del self._hosts[host]
        self._arrivals.look()

    def spawn(
        self, work: Coroutine[Any, Any, None], failed: Callable[[BaseException], None]
    ) -> None:
        """Run `work` to its end, also when its connection goes; `failed` takes what it lets out."""

        def ended(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            error = None if task.cancelled() else task.exception()
            if error is not None:
                failed(error)

        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(ended)

    def _sweep(self) -> None:
        """Close connections without traffic for connections.max.idle.ms; shrink quiet buffers."""
        self.tick += 1
        self._arrivals.look()  # another listener's connection may have left its place
        for connection in list(self._connections):
            connection.note_sent_bytes()
            age = self.tick - connection.last_active_tick
            if age > self._idle_ticks and not connection.in_flight:
                connection.close_idle()
            elif age == 1 or age == 2:
                connection.shrink_when_quiet()
        self._sweep_timer = self.loop.call_later(self._sweep_s, self._sweep)
