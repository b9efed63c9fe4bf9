"""The settings of a gateway."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headwater_gateway.app.sessions import LIFETIME_S

BODY_BYTES_MAX = 32 * 1024 * 1024
CONSUMERS_MAX = 32
"""Of one principal."""


OWN_REGISTRY = "own"
"""A schema registry that this process serves."""


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """The gateway's settings. `properties` hold secrets: they are not shown."""

    bootstrap_servers: str
    """Where users log in."""
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Security properties of clients, without the user's own `sasl.*`."""
    has_login: bool = False
    """True: each request needs a login of its own."""
    password_mechanism: str = "SCRAM-SHA-512"
    host: str = "127.0.0.1"
    port: int = 8082
    is_tls: bool = False
    """True: the process itself speaks TLS."""
    allowed_hosts: tuple[str, ...] = ()
    is_read_only: bool = False
    schema_registry: str = ""
    """The URL of a schema registry, or OWN_REGISTRY; empty: none."""
    body_bytes_max: int = BODY_BYTES_MAX
    consumers_max: int = CONSUMERS_MAX
    consumer_idle_s: float = 300.0
    status_urls: tuple[str, ...] = ()
    """Of brokers' status pages, for the console."""
    session_s: float = LIFETIME_S
    """After so long a browser has to log in again, used or not."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses whose X-Forwarded-For and X-Forwarded-Proto count: proxies that end TLS."""

    @property
    def is_reached_by_tls(self) -> bool:
        """True when browsers and programs speak TLS, to this process or to a proxy before it."""
        return self.is_tls or bool(self.trusted_proxies)

    @property
    def url(self) -> str:
        """Where it is reached, for people."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.is_tls else 'http'}://{host}:{self.port}"
