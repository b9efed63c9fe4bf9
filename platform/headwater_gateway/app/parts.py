"""The seam between the gateway's shell and what answers under it: REST, registry, console.

A part gives routes; the shell has checked Host, Origin, media type and login before they are
called. In a handler `request.state.login` is who asks, and `services.clients.of(login)` are that
user's own clients. In the console's handlers `request.state.session` is the session, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from starlette.routing import BaseRoute

from headwater.clock import Clock
from headwater.entropy import Entropy
from headwater_gateway.app.audit import Audit
from headwater_gateway.app.client_pools import ClientPools, Clients
from headwater_gateway.app.errors import GatewayError
from headwater_gateway.app.login import Login
from headwater_gateway.app.sessions import Session, Sessions
from headwater_gateway.app.settings import GatewaySettings

PAGES = "/console"
"""Where the routes of pages are mounted."""
LOGIN_PATH = f"{PAGES}/login"
OPEN_PATHS = (LOGIN_PATH, f"{PAGES}/static/")
"""Pages that need no login; a name that ends with a slash: all under it."""
CSRF_HEADER = "x-csrf-token"

__all__ = [
    "CSRF_HEADER",
    "LOGIN_PATH",
    "OPEN_PATHS",
    "PAGES",
    "Audit",
    "ClientPools",
    "Clients",
    "Face",
    "GatewayError",
    "GatewaySettings",
    "Login",
    "Part",
    "Services",
    "Session",
    "Sessions",
]


class Face(Enum):
    """Whom a part answers."""

    API = "api"
    """Programs: Basic or Bearer, JSON; no cookie is read. Its paths begin at the root."""
    PAGES = "pages"
    """Browsers: the session's cookie; writes need the same origin and the session's token. Its
    paths begin at `PAGES`."""


@dataclass(frozen=True, slots=True)
class Services:
    """What the shell gives its parts."""

    settings: GatewaySettings
    clients: ClientPools
    clock: Clock
    entropy: Entropy
    audit: Audit
    sessions: Sessions


class Part(Protocol):
    """A part of the gateway."""

    @property
    def name(self) -> str:
        """For health and messages."""
        ...

    @property
    def face(self) -> Face:
        """Whom it answers."""
        ...

    def routes(self) -> Sequence[BaseRoute]:
        """Its routes, asked for before `start`. With `--read-only` it leaves out what writes."""
        ...

    async def start(self, services: Services) -> None:
        """Begin, on the server's loop."""
        ...

    async def close(self) -> None:
        """End: what it opened, it closes."""
        ...
