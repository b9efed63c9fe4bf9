"""What the console needs of the gateway: whose request it is, and clients that act for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from headwater.clock import Clock
from headwater.entropy import Entropy


class Session(Protocol):
    """A browser that is logged in."""

    @property
    def csrf(self) -> str:
        """The token that writes send."""
        ...


class Clients(Protocol):
    """Clients of one principal."""

    @property
    def admin(self) -> Any:
        """An `AsyncAdmin`."""
        ...

    @property
    def servers(self) -> str:
        """The bootstrap servers."""
        ...

    @property
    def options(self) -> Mapping[str, Any]:
        """The security options of any client of this principal."""
        ...

    async def producer(self) -> Any:
        """An `AsyncProducer`, shared."""
        ...

    def consumer(self, *topics: str, **options: Any) -> Any:
        """A new `AsyncConsumer`, not yet started."""
        ...


class ClientPools(Protocol):
    """The clients of all principals."""

    def of(self, login: Any) -> Clients:
        """The clients of who is logged in."""
        ...


class Audit(Protocol):
    """Lines about what was changed."""

    def wrote(self, login: Any, host: str, what: str, outcome: str = "done") -> None:
        """Note a change."""
        ...

    def recent(self) -> list[Any]:
        """The last lines, newest first."""
        ...


class Settings(Protocol):
    """What the console needs of the gateway's settings."""

    @property
    def bootstrap_servers(self) -> str:
        """Where users log in."""
        ...

    @property
    def schema_registry(self) -> str:
        """The URL of a registry; `own`: this process; empty: none."""
        ...

    @property
    def status_urls(self) -> tuple[str, ...]:
        """Of brokers' status pages."""
        ...


class Services(Protocol):
    """What the gateway gives."""

    @property
    def settings(self) -> Settings:
        """The gateway's settings."""
        ...

    @property
    def clients(self) -> ClientPools:
        """Clients per principal."""
        ...

    @property
    def clock(self) -> Clock:
        """Time."""
        ...

    @property
    def entropy(self) -> Entropy:
        """Randomness."""
        ...

    @property
    def audit(self) -> Audit:
        """Audit lines."""
        ...
