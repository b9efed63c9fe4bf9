"""The registry as a part of the gateway: its application under the paths of its own interface."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Receive, Scope, Send

from headwater_gateway.app.parts import Face, Services

FIRST_PARTS = frozenset(
    ("subjects", "schemas", "config", "mode", "compatibility", "contexts", "apis", "v1")
)
"""The first parts of its paths; the REST interface has none of them."""
SAFE_METHODS = ("GET", "HEAD")

Open = Callable[[ExitStack], ASGIApp]
"""Begins a registry; blocks until it has read its topic."""


class RegistryPart:
    """The part. It is an ASGI application, too, for what runs in this process."""

    name = "schema registry"
    face = Face.API

    def __init__(self, open_registry: Open, *, is_read_only: bool = False) -> None:
        self._open = open_registry
        self._is_read_only = is_read_only
        self._stack = ExitStack()
        self._app: ASGIApp | None = None

    def routes(self) -> Sequence[BaseRoute]:
        """See the port."""
        return [_FirstParts(self, is_read_only=self._is_read_only)]

    async def start(self, services: Services) -> None:
        """See the port."""
        self._app = await asyncio.to_thread(self._open, self._stack)

    async def close(self) -> None:
        """See the port."""
        await asyncio.to_thread(self._stack.close)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        assert self._app is not None, "called between start and close"
        await self._app(scope, receive, send)


class _FirstParts(BaseRoute):
    """Matches the registry's paths."""

    path = "/{registry}"

    def __init__(self, app: ASGIApp, *, is_read_only: bool) -> None:
        self.endpoint = app
        self._is_read_only = is_read_only

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """By the first part of the path."""
        if scope["type"] != "http":
            return Match.NONE, {}
        first = scope["path"].lstrip("/").partition("/")[0]
        if first not in FIRST_PARTS or (self._is_read_only and not _reads(scope)):
            return Match.NONE, {}
        return Match.FULL, {"endpoint": self.endpoint}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        await self.endpoint(scope, receive, send)


def _reads(scope: Scope) -> bool:
    """Compatibility is asked by POST; so is which version a schema has (`/subjects/S`)."""
    parts = [part for part in scope["path"].split("/") if part]
    asks = parts[:1] == ["compatibility"] or (parts[:1] == ["subjects"] and len(parts) == 2)
    return scope["method"] in SAFE_METHODS or (scope["method"] == "POST" and asks)
