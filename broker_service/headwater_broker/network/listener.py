"""One listener of the data plane (Kafka's `Acceptor`): it binds a port and owns its connections."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any

from headwater.config.keys import Values
from headwater.config.quota_precedence import CONNECTION_RATE
from headwater.errors import UsageError
from headwater.ordered import OrderedSet
from headwater.security.protocol import SecurityProtocol
from headwater_broker.api.broker_controls import NO_CONTROLS, BrokerControls
from headwater_broker.api.context import Services
from headwater_broker.api.registry import ApiRow
from headwater_broker.network.accept_queue import WAITING_MAX, AcceptQueue, QueuedConnection
from headwater_broker.network.connection import Connection
from headwater_broker.network.connection_ports import (
    AcceptedConnection,
    Acceptor,
    GatedConnection,
    ServedRequests,
)
from headwater_broker.network.connection_quotas import (
    UNLIMITED,
    ConnectionQuotas,
    ConnectionRates,
)
from headwater_broker.network.idle_connections import IdleConnections
from headwater_broker.network.turn_budget import TurnBudget
from headwater_broker.network.unauthenticated import UnauthenticatedConnections
from headwater_broker.network.wrong_protocol import WrongProtocolHints
from headwater_broker.security.authentication_gate import (
    AUTHENTICATION_KEYS,
    UNAUTHENTICATED_REQUEST_BYTES_MAX,
    AuthenticationGate,
    GateActions,
)
from headwater_broker.security.session import MakeAuthenticator, Session

BACKLOG = 512
SYSTEM_BUFFER = -1
"""socket.*.buffer.bytes: the system chooses, and adapts, the buffers of connections."""
ACCEPTS_PER_TURN = 32
"""asyncio accepts in one turn of its loop as many connections as it thinks the backlog holds."""

logger = logging.getLogger(__name__)

MakeConnection = Callable[[Acceptor], asyncio.BaseProtocol]
"""Makes a connection of a listener's security protocol."""


class Listener:
    """A listener in Kafka's sense: name, host and port, and the connections that it accepted."""

    def __init__(
        self,
        services: Services,
        rows: dict[int, ApiRow],
        loop: asyncio.AbstractEventLoop,
        *,
        name: str = "PLAINTEXT",
        protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT,
        make_connection: MakeConnection = Connection,
        requires_authentication: bool = False,
        make_authenticator: MakeAuthenticator | None = None,
        request_bytes_max: int = 100 * 1024 * 1024,
        unauthenticated_request_bytes_max: int = UNAUTHENTICATED_REQUEST_BYTES_MAX,
        in_flight_max: int = 500,
        send_buffer_bytes: int = SYSTEM_BUFFER,
        receive_buffer_bytes: int = SYSTEM_BUFFER,
        idle_ms: int = 600_000,
        connections_max: int = UNLIMITED,
        connections_per_host_max: int = UNLIMITED,
        connections_of_host: Mapping[str, int] | None = None,
        connections_per_s: int = UNLIMITED,
        waiting_max: int = WAITING_MAX,
        turn: TurnBudget | None = None,
        controls: BrokerControls = NO_CONTROLS,
    ) -> None:
        self.services = services
        self.controls = controls
        self.rows = rows
        self.loop = loop
        self.name = name
        self.protocol = protocol
        self.hints = WrongProtocolHints(name, protocol, services.clock)
        self.served = ServedRequests(rows, request_bytes_max)
        self.served_unauthenticated = ServedRequests(
            {key: rows[key] for key in AUTHENTICATION_KEYS if key in rows},
            unauthenticated_request_bytes_max,
        )
        self.in_flight_max = in_flight_max
        self.tick = 0
        self.turn = turn or TurnBudget(loop)
        self.port = 0
        self._make_connection = make_connection
        self._requires_authentication = requires_authentication or protocol.uses_sasl
        self._make_authenticator = make_authenticator
        self.unauthenticated = (
            UnauthenticatedConnections(loop, self._next_protocol)
            if self._requires_authentication or protocol.uses_tls
            else None
        )
        """Connections that are not authenticated; None where everybody is let in."""
        self._buffers = (
            (socket.SO_SNDBUF, send_buffer_bytes),
            (socket.SO_RCVBUF, receive_buffer_bytes),
        )
        quotas = services.quotas
        rates = ConnectionRates(
            services.clock, quotas.windows, connections_per_s, quotas.connection_rate
        )
        self._quotas = ConnectionQuotas(
            rates, connections_max, connections_per_host_max, connections_of_host or {}
        )
        self.idle = IdleConnections(idle_ms)
        self._connections = OrderedSet[AcceptedConnection]()
        self._closing = OrderedSet[AcceptedConnection]()
        """Closed for the sake of max.connections, and not gone yet."""
        self._accept_queue = AcceptQueue(
            loop, self._has_place, lambda: make_connection(self), waiting_max
        )
        self._tasks = OrderedSet[asyncio.Task[None]]()
        self._server: asyncio.Server | None = None
        self._sweep_timer: asyncio.TimerHandle | None = None

    @property
    def connections(self) -> tuple[AcceptedConnection, ...]:
        """Open connections, oldest first."""
        return tuple(self._connections)

    @property
    def waiting(self) -> int:
        """How many connections wait for a place (max.connections)."""
        return len(self._accept_queue)

    def connections_from(self, host: str) -> int:
        """How many connections are open from this address."""
        return self._quotas.hosts[host]

    def limit_connections(self, values: Values) -> None:
        """Set the limits of connections while the listener runs, as in Kafka.

        The idlest connections are closed until max.connections holds. The limits of one address are
        for new connections only.
        """
        self._quotas.configure(values)
        open_now = self.services.meters.connections - len(self._closing)
        self._close_idlest(open_now - self._quotas.connections_max)
        self._accept_queue.serve_waiting()

    def _has_place(self) -> bool:
        return self.services.meters.connections < self._quotas.connections_max

    def _close_idlest(self, excess: int) -> None:
        if excess <= 0:
            return
        candidates = [c for c in self._connections if c not in self._closing]
        candidates.sort(key=lambda connection: connection.last_active_tick)
        logger.info("max.connections was lowered: closing the %d idlest connections", excess)
        for connection in candidates[:excess]:
            self._closing.add(connection)
            connection.close(self._quotas.too_many)

    def _protocol(self) -> asyncio.BaseProtocol:
        if self.unauthenticated is not None:
            return self.unauthenticated.protocol()
        return self._next_protocol()

    def _next_protocol(self) -> asyncio.BaseProtocol:
        if self._quotas.connections_max >= UNLIMITED:
            return self._make_connection(self)
        return QueuedConnection(self._accept_queue)

    async def start(self, host: str, port: int) -> int:
        """`bind`, then `serve`; the port bound."""
        await self.bind(host, port)
        await self.serve()
        return self.port

    async def bind(self, host: str, port: int) -> int:
        """Bind the port without accepting yet. Raises UsageError when that is not possible."""
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
                    continue  # a loop of virtual time: there is no backlog
                with socket.socket(fileno=os.dup(listening.fileno())) as raw:
                    raw.listen(BACKLOG)
        self._schedule_sweep()

    def stop_accepting(self) -> None:
        """Refuse new connections; open ones stay."""
        if self._server is not None:
            self._server.close()
        self._accept_queue.close()
        if self.unauthenticated is not None:
            self.unauthenticated.close()

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

    def open_session(self, connection: GatedConnection) -> Session:
        """The session of a new connection, behind a gate where authentication is required."""
        return Session(
            self.services.authorizer,
            listener=self.name,
            security_protocol=self.protocol,
            gate=self._gate(connection) if self._requires_authentication else None,
            make_authenticator=self._make_authenticator,
        )

    def _gate(self, connection: GatedConnection) -> AuthenticationGate:
        return AuthenticationGate(
            GateActions(
                serve_all=partial(self._serve_all, connection),
                serve_authentication=partial(connection.serve, self.served_unauthenticated),
                serve_tokens=connection.serve_tokens,
                close_after_reply=connection.close_after_reply,
                call_later=self.loop.call_later,
            )
        )

    def _serve_all(self, connection: GatedConnection) -> None:
        connection.serve(self.served)
        self.authenticated(connection)

    def authenticated(self, connection: AcceptedConnection) -> None:
        """A connection needs no place among the unauthenticated ones any more."""
        if self.unauthenticated is not None:
            self.unauthenticated.release(connection.accepted)

    def admit(self, connection: AcceptedConnection) -> str:
        """Count a new connection; the reason to refuse it, or an empty text."""
        host = connection.session.host
        self._connections.add(connection)
        meters = self.services.meters
        meters.connections += 1
        meters.connections_total += 1
        if refused := self._quotas.added(host, meters.connections):
            return refused
        self._pace(connection)
        return ""

    def _pace(self, connection: AcceptedConnection) -> None:
        """Delay connections that come too fast; those of one address are closed then (KIP-612)."""
        host, throttled = connection.session.host, self.services.quotas.throttled
        if delay_ms := self._quotas.rates.host_delay_ms(host):
            throttled[CONNECTION_RATE] += 1
            self._mute_new(connection, delay_ms)
            reason = f"connections of {host} come faster than its {CONNECTION_RATE} allows"
            self.loop.call_later(delay_ms / 1000, connection.close, reason)
        elif delay_ms := self._quotas.rates.delay_ms():
            throttled["max.connection.creation.rate"] += 1
            self._mute_new(connection, delay_ms)

    def _mute_new(self, connection: AcceptedConnection, delay_ms: int) -> None:
        """Mute before anything is read, but not within `connection_made`: the first releases of
        Python 3.11 begin to read after it all the same."""
        self.loop.call_soon(connection.mute, delay_ms)

    def forget(self, connection: AcceptedConnection) -> None:
        """A connection is gone."""
        if connection not in self._connections:
            return
        self._connections.discard(connection)
        self.authenticated(connection)
        self._closing.discard(connection)
        self.idle.forget(connection)
        self.services.meters.connections -= 1
        self._quotas.removed(connection.session.host)
        self._accept_queue.serve_waiting()

    def spawn(
        self, work: Coroutine[Any, Any, None], failed: Callable[[BaseException], None]
    ) -> None:
        """Run `work` to its end, also when its connection is lost; `failed` gets its exception."""

        def ended(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            error = None if task.cancelled() else task.exception()
            if error is not None:
                failed(error)

        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(ended)

    def sweep(self) -> None:
        """Close connections without traffic for connections.max.idle.ms; shrink quiet buffers."""
        self.tick += 1
        self._accept_queue.serve_waiting()  # another listener may have freed a place
        self.idle.sweep(self.tick, list(self._connections))

    def _schedule_sweep(self) -> None:
        self._sweep_timer = self.loop.call_later(self.idle.interval_s, self._sweep_due)

    def _sweep_due(self) -> None:
        self.sweep()
        self._schedule_sweep()
