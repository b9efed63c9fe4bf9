"""A gateway without Kafka for the tests: the shell around a part of the test's own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx
from starlette.routing import BaseRoute

from headwater.clock import Clock
from headwater.errors import ErrorCode, KafkaError
from headwater.testing.clocks import ManualClock, SeededEntropy
from headwater_gateway.app.application import GatewayApp
from headwater_gateway.app.audit import Audit
from headwater_gateway.app.client_pools import ClientPools, Connector
from headwater_gateway.app.guard import Guard
from headwater_gateway.app.login import Login
from headwater_gateway.app.parts import Face, Part, Services
from headwater_gateway.app.sessions import Sessions
from headwater_gateway.app.settings import GatewaySettings
from headwater_gateway.serving.server import behind_proxies

PASSWORD = "secret"
ALICE = httpx.BasicAuth("alice", PASSWORD)
SETTINGS = GatewaySettings("127.0.0.1:9092")


class FakeClients:
    """The clients of one principal: what a test gives them, and whether they are open."""

    servers = SETTINGS.bootstrap_servers
    options: Mapping[str, Any] = {}

    def __init__(self, login: Login, admin: Any = None, producer: Any = None) -> None:
        self.login = login
        self.admin = admin
        self.is_open = True
        self._producer = producer

    async def producer(self) -> Any:
        """The test's producer."""
        return self._producer

    def consumer(self, *topics: str, **options: Any) -> Any:
        """None: a test that needs one gives its own clients."""
        raise NotImplementedError

    async def close(self) -> None:
        """Note it."""
        self.is_open = False


class FakeConnector:
    """Brokers that know one password."""

    def __init__(self, admin: Any = None, producer: Any = None) -> None:
        self.opened: list[FakeClients] = []
        self.checks = 0
        self.is_down = False
        self.password = PASSWORD
        self._admin, self._producer = admin, producer

    async def connect(self, login: Login) -> FakeClients:
        """Log in."""
        self._check(login)
        self.opened.append(FakeClients(login, self._admin, self._producer))
        return self.opened[-1]

    async def check(self, login: Login) -> None:
        """Log in."""
        self.checks += 1
        self._check(login)

    def _check(self, login: Login) -> None:
        if self.is_down:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "none answers")
        if login.secret not in ("", self.password):
            raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, "no")


class TestPart:
    """A part with routes of a test."""

    __test__ = False

    def __init__(self, routes: Sequence[BaseRoute], face: Face = Face.API) -> None:
        self.name = "test"
        self.face = face
        self.is_started = False
        self._routes = routes

    def routes(self) -> Sequence[BaseRoute]:
        """The test's."""
        return self._routes

    async def start(self, services: Services) -> None:
        """Note it."""
        self.is_started = True

    async def close(self) -> None:
        """Note it."""
        self.is_started = False


class Gateway:
    """A gateway that runs, and its doubles."""

    def __init__(
        self, app: GatewayApp, services: Services, clock: ManualClock, parts: Sequence[Part]
    ) -> None:
        self.app = app
        self.parts = parts
        self.services = services
        self.clock = clock

    def client(self, **options: Any) -> httpx.AsyncClient:
        """A client of it; no exception of the application reaches it."""
        proxies = self.services.settings.trusted_proxies
        app: Any = behind_proxies(self.app, proxies) if proxies else self.app
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        base = f"http://localhost:{SETTINGS.port}"
        return httpx.AsyncClient(transport=transport, base_url=base, **options)


@asynccontextmanager
async def running(
    parts: Sequence[Part],
    connector: Connector | None = None,
    clock: Clock | None = None,
    **settings: Any,
) -> AsyncIterator[Gateway]:
    """A gateway of these parts and settings."""
    told = replace(SETTINGS, **settings)
    manual, entropy = ManualClock(), SeededEntropy()
    clock = clock or manual
    audit = Audit(clock)
    pools = ClientPools(
        connector or FakeConnector(), clock, entropy, on_refused=audit.login_refused
    )
    is_tls = told.is_reached_by_tls
    sessions = Sessions(clock, entropy, is_secure=is_tls, lifetime_s=told.session_s)
    services = Services(told, pools, clock, entropy, audit, sessions)
    app = GatewayApp(parts, services, Guard((told.host, *told.allowed_hosts), is_tls=is_tls))
    async with app.lifespan():
        yield Gateway(app, services, manual, parts)
