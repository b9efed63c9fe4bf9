"""A console over doubles: an admin that answers from values, and a browser's requests to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from typing import Any
from uuid import UUID

from starlette.applications import Starlette
from starlette.routing import Mount, Route
from starlette.testclient import TestClient
from starlette.types import ASGIApp, Receive, Scope, Send

from headwater.client.values import (
    Broker,
    ClusterDescription,
    PartitionDescription,
    TopicDescription,
)
from headwater.testing.clocks import ManualClock, SeededEntropy
from headwater_gateway.app.audit import Audit
from headwater_gateway.app.login import Login
from headwater_gateway.app.parts import GatewaySettings, Services
from headwater_gateway.app.sessions import Sessions
from headwater_gateway.app.settings import OWN_REGISTRY
from headwater_gateway.console.part import ConsolePart
from headwater_gateway.console.shell import Shell
from headwater_gateway.registry.clients import SchemaRegistry
from headwater_gateway.rest.registry_port import NoRegistry

ORIGIN = "http://testserver"
SETTINGS = GatewaySettings("127.0.0.1:9092")


def topic(name: str, partitions: int = 3, **of_partition: Any) -> TopicDescription:
    """A topic whose partitions have a leader and a full ISR, unless said otherwise."""
    row = {
        "leader": 0,
        "leader_epoch": 1,
        "replicas": (0, 1),
        "isr": (0, 1),
        "offline_replicas": (),
    } | of_partition
    rows = tuple(PartitionDescription(partition=i, **row) for i in range(partitions))
    return TopicDescription(name, UUID(int=1), name.startswith("__"), rows)


class FakeAdmin:
    """Answers the console's questions from `answers`; notes each call."""

    def __init__(self, **answers: Any) -> None:
        # Nothing listens on port 1: these brokers tell nothing of themselves.
        brokers = (Broker(0, "127.0.0.1", 1, "a"), Broker(1, "127.0.0.1", 1, "b"))
        self.answers: dict[str, Any] = {
            "describe_cluster": ClusterDescription("the-cluster", 0, brokers),
            "describe_topics": {},
            "list_groups": [],
            **answers,
        }
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        async def call(*args: Any, **options: Any) -> Any:
            self.calls.append((name, args, options))
            answer = self.answers[name]
            if isinstance(answer, Exception):
                raise answer
            return answer(*args, **options) if callable(answer) else answer

        return call

    def named(self, name: str) -> list[tuple[Any, ...]]:
        """The arguments of each call of a method."""
        return [args for called, args, _ in self.calls if called == name]


@dataclass
class FakeClients:
    """Of one principal."""

    admin: FakeAdmin
    servers: str = "127.0.0.1:9092"
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class FakePools:
    """Everyone has the same clients."""

    clients: FakeClients

    def of(self, login: Any) -> FakeClients:
        return self.clients

    @asynccontextmanager
    async def lease(self, login: Any, host: str = "") -> AsyncIterator[FakeClients]:
        yield self.clients


@dataclass
class FakeSession:
    csrf: str = "c" * 64


def services_over(clients: FakeClients, settings: GatewaySettings) -> Services:
    """What a gateway gives its parts."""
    clock, entropy = ManualClock(), SeededEntropy(7)
    pools: Any = FakePools(clients)
    sessions = Sessions(clock, entropy, is_secure=False)
    return Services(settings, pools, clock, entropy, Audit(clock), sessions)


class FakeShell:
    """Gives each request a login and a session, as the gateway does."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.login = Login("ann")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["state"] = {"login": self.login, "session": FakeSession()}
        await self._app(scope, receive, send)


class Console:
    """A console, and a browser before it."""

    def __init__(
        self,
        admin: FakeAdmin | None = None,
        *,
        read_only: bool = False,
        more: Callable[[Shell], list[Route]] = lambda _shell: [],
        registry: SchemaRegistry | None = None,
    ) -> None:
        """`more`: routes of the test's own."""
        self.admin = admin or FakeAdmin()
        schemas = "" if registry is None else OWN_REGISTRY
        told = replace(SETTINGS, is_read_only=read_only, schema_registry=schemas)
        self.services = services_over(FakeClients(self.admin), told)
        self.part = ConsolePart(told, registry or NoRegistry())
        routes = [*more(self.part.shell), *self.part.routes()]
        self.shell = FakeShell(Starlette(routes=[Mount("/console", routes=routes)]))
        asyncio.run(self.part.start(self.services))
        self.browser = TestClient(self.shell, ORIGIN, follow_redirects=False)

    def get(self, path: str, **query: Any) -> str:
        """A page that must be there."""
        reply = self.browser.get(f"/console{path}", params=query)
        assert reply.status_code == 200, reply.text
        return str(reply.text)

    def plan(self, path: str, fields: Mapping[str, str], status: int = 200) -> dict[str, str]:
        """Post a form; the fields of the plan's own form."""
        reply = self.browser.post(f"/console{path}", data=dict(fields))
        assert reply.status_code == status, reply.text
        return hidden_fields(reply.text)

    def confirm(self, path: str, plan: Mapping[str, str], **secrets: str) -> Any:
        """Post the plan's own form."""
        return self.browser.post(f"/console{path}", data={**plan, **secrets})


def hidden_fields(page: str) -> dict[str, str]:
    """The hidden fields of a page's forms."""
    found: dict[str, str] = {}

    class Fields(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            given = dict(attrs)
            if tag == "input" and given.get("type") == "hidden":
                found[given["name"] or ""] = given["value"] or ""

    Fields().feed(page)
    return found
