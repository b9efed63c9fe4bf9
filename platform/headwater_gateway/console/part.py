"""The console as a part of the gateway: its routes, its static files. `navigation` has the menu.

The console decides no rights: each request uses its user's clients (`app.client_pools`), and the
brokers' ACLs decide.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from headwater_gateway.app.parts import Face, GatewaySettings, Services
from headwater_gateway.console.addresses import ROOT
from headwater_gateway.console.completeness import routes as completeness
from headwater_gateway.console.history import routes as history
from headwater_gateway.console.messages.routes import Messages
from headwater_gateway.console.rendering import Templates
from headwater_gateway.console.shell import Shell
from headwater_gateway.console.sql import routes as sql
from headwater_gateway.console.views import (
    access,
    audit,
    brokers,
    configs,
    groups,
    login,
    overview,
    schemas,
    share_groups,
    topic,
    topics,
    transactions,
)
from headwater_gateway.registry.clients import SchemaRegistry

STATIC = Path(__file__).parent / "static"
MEDIA_TYPES = {
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
    ".LICENSE": "text/plain",
    ".json": "application/json",
}
A_YEAR = "public, max-age=31536000, immutable"


class Assets:
    """The static files, by their path; an address holds the digest of its file."""

    def __init__(self, folder: Path = STATIC) -> None:
        self._files = {
            str(p.relative_to(folder)): p for p in folder.rglob("*") if p.suffix in MEDIA_TYPES
        }
        self._digests = {name: _digest(path) for name, path in self._files.items()}

    def address(self, name: str) -> str:
        """The address of a file, for templates."""
        return f"{ROOT}/static/{name}?v={self._digests[name]}"

    async def serve(self, request: Request) -> Response:
        """A file, kept by the browser for as long as its digest is asked for."""
        name = request.path_params["name"]
        path = self._files.get(name)
        if path is None:
            return PlainTextResponse("there is no such file", 404)
        headers = {"X-Content-Type-Options": "nosniff"}
        if request.query_params.get("v") == self._digests[name]:
            headers["Cache-Control"] = A_YEAR
        return FileResponse(path, headers=headers, media_type=MEDIA_TYPES[path.suffix])


@cache
def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


class ConsolePart:
    """The part that the gateway mounts at `/console`."""

    name = "console"
    face = Face.PAGES

    def __init__(self, settings: GatewaySettings, registry: SchemaRegistry) -> None:
        """With `is_read_only` no route that writes exists. `registry` is asked where the settings
        name one."""
        self._assets = Assets()
        self.shell = Shell(
            Templates({"asset": self._assets.address}), read_only=settings.is_read_only
        )
        """What the views stand on."""
        self._messages = Messages(self.shell, registry)
        self._registry = registry

    def routes(self) -> Sequence[BaseRoute]:
        """All routes of the console."""
        return [
            Route("/static/{name:path}", self._assets.serve, name="console-static"),
            *login.routes(self.shell),
            *overview.routes(self.shell),
            *topics.routes(self.shell),
            *topic.routes(self.shell),
            *groups.routes(self.shell),
            *share_groups.routes(self.shell),
            *configs.routes(self.shell),
            *transactions.routes(self.shell),
            *brokers.routes(self.shell),
            *schemas.routes(self.shell, self._registry),
            *access.routes(self.shell),
            *audit.routes(self.shell),
            *completeness.routes(self.shell, lambda: self._messages.browser),
            *self._messages.routes(),
            *history.routes(self.shell),
            *sql.routes(self.shell, lambda: self._messages.browser),
            self.shell.unknown(),
        ]

    async def start(self, services: Services) -> None:
        """Begin."""
        self.shell.start(services)
        self._messages.start(services)

    async def close(self) -> None:
        """End."""
        await self._messages.close()
        await self.shell.close()
