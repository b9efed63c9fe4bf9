"""A console over doubles: an admin that answers from values, and a browser's requests to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
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
from headwater_gateway.console.part import ConsolePart
from headwater_gateway.console.shell import Shell

ORIGIN = "http://testserver"


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
        brokers = (Broker(0, "h0", 9092, "a"), Broker(1, "h1", 9092, "b"))
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


@dataclass
class FakeLogin:
    name: str = "ann"


@dataclass
class FakeSession:
    csrf: str = "c" * 64


@dataclass
class FakeSettings:
    bootstrap_servers: str = "127.0.0.1:9092"
    schema_registry: str = ""
    status_urls: tuple[str, ...] = ()


@dataclass
class AuditLine:
    at_ms: int
    principal: str
    host: str
    what: str
    outcome: str


class FakeAudit:
    """Keeps the lines."""

    def __init__(self) -> None:
        self.lines: list[AuditLine] = []

    def wrote(self, login: Any, host: str, what: str, outcome: str = "done") -> None:
        self.lines.append(AuditLine(0, f"User:{login.name}", host, what, outcome))

    def recent(self) -> Sequence[AuditLine]:
        return self.lines[::-1]


@dataclass
class FakeServices:
    """What a gateway gives its parts."""

    clients: FakePools
    settings: FakeSettings = field(default_factory=FakeSettings)
    clock: ManualClock = field(default_factory=ManualClock)
    entropy: SeededEntropy = field(default_factory=lambda: SeededEntropy(7))
    audit: FakeAudit = field(default_factory=FakeAudit)


class FakeShell:
    """Gives each request a login and a session, as the gateway does."""

    def __init__(self, app: ASGIApp, login: FakeLogin) -> None:
        self._app = app
        self._login = login

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["state"] = {"login": self._login, "session": FakeSession()}
        await self._app(scope, receive, send)


class Console:
    """A console, and a browser before it."""

    def __init__(
        self,
        admin: FakeAdmin | None = None,
        *,
        read_only: bool = False,
        more: Callable[[Shell], list[Route]] = lambda _shell: [],
    ) -> None:
        """`more`: routes of the test's own."""
        self.admin = admin or FakeAdmin()
        self.services = FakeServices(FakePools(FakeClients(self.admin)))
        self.part = ConsolePart(read_only=read_only)
        routes = [*self.part.routes(), *more(self.part.shell)]
        self.login = FakeLogin()
        app = FakeShell(Starlette(routes=[Mount("/console", routes=routes)]), self.login)
        asyncio.run(self.part.start(self.services))
        self.browser = TestClient(app, ORIGIN, follow_redirects=False)

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
