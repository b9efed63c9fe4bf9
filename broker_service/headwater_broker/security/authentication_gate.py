"""The authentication gate of a connection: only SASL's requests pass until it is open.

A listener that requires authentication gives each of its connections a gate (KIP-43, KIP-152). The
gate opens when the session is authenticated, and shuts again when the session's lifetime ends or a
re-authentication begins (KIP-368): Kafka's `SaslServerAuthenticator` states.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from headwater.errors import ErrorCode

AUTHENTICATION_KEYS = (17, 18, 36)
"""SaslHandshake, ApiVersions, SaslAuthenticate: what passes a shut gate."""
UNAUTHENTICATED_REQUEST_BYTES_MAX = 512 * 1024
"""Largest frame that passes a shut gate; the default of sasl.server.max.receive.size."""

UNAUTHENTICATED_REQUESTS_MAX = 16
"""Requests that pass a shut gate; no mechanism needs more."""

TokenExchange = Callable[[bytes], Awaitable[bytes]]
"""SASL token of the client -> SASL token of the broker."""


class Timer(Protocol):
    """A call that is due later (`asyncio.TimerHandle`)."""

    def cancel(self) -> None:
        """Do not make the call."""
        ...


CallLater = Callable[[float, Callable[[], None]], Timer]
"""(seconds, callback) -> the timer: `call_later` of the broker's loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateActions:
    """A gate's actions on its connection."""

    serve_all: Callable[[], None]
    """Serve every request of the listener."""
    serve_authentication: Callable[[], None]
    """Serve requests with `AUTHENTICATION_KEYS` only."""
    serve_tokens: Callable[[TokenExchange], None]
    """Take each frame as a SASL token without a request header."""
    close_after_reply: Callable[[str], None]
    """Read nothing more, and close for a reason once the request at hand is answered."""
    call_later: CallLater


@dataclass(frozen=True, slots=True)
class Handshake:
    """The answer to SaslHandshake."""

    error: ErrorCode
    mechanisms: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TokenAnswer:
    """The answer to a SASL token."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    token: bytes = b""
    lifetime_ms: int = 0
    """How long the session lives; 0: for good, or not authenticated yet."""


class Authenticator(Protocol):
    """The SASL authentication of one connection (Kafka's `SaslServerAuthenticator`)."""

    def handshake(self, mechanism: str, version: int) -> Handshake:
        """The client chooses a mechanism; `version` of its SaslHandshake."""
        ...

    async def authenticate(self, token: bytes) -> TokenAnswer:
        """The client's next token."""
        ...


class AuthenticationGate:
    """Decides which requests one connection serves. Shut at first."""

    __slots__ = ("_actions", "_expiry", "_requests", "is_open")

    def __init__(self, actions: GateActions) -> None:
        self.is_open = False
        self._actions = actions
        self._expiry: Timer | None = None
        self._requests = 0
        actions.serve_authentication()

    def open(self, lifetime_ms: int | None = None) -> None:
        """The session is authenticated, for `lifetime_ms` or for good."""
        self._cancel_expiry()
        self.is_open = True
        self._requests = 0
        self._actions.serve_all()
        if lifetime_ms is not None:
            self._expiry = self._actions.call_later(lifetime_ms / 1000, self.shut)

    def shut(self) -> None:
        """The session's lifetime is over, or a re-authentication begins. Another request than that
        closes the connection (`network.request_dispatch`)."""
        self._cancel_expiry()
        self.is_open = False
        self._actions.serve_authentication()

    def admits_request(self) -> bool:
        """Count a request that comes while the gate is shut; False for one too many."""
        self._requests += 1
        return self._requests <= UNAUTHENTICATED_REQUESTS_MAX

    def read_tokens(self, exchange: TokenExchange) -> None:
        """Frames are bare SASL tokens until the gate opens: SaslHandshake v0 was answered."""
        self._actions.serve_tokens(exchange)

    def refuse(self, reason: str) -> None:
        """Authentication failed. To be called when the reply that says so is ready."""
        self._cancel_expiry()
        self.is_open = False
        self._actions.close_after_reply(reason)

    def discard(self) -> None:
        """The connection is gone."""
        self._cancel_expiry()

    def _cancel_expiry(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
