"""Credentials of outgoing connections as a port: TLS, and the SASL exchange that follows it.

Whatever opens connections to brokers (SDK, blocking client, follower fetchers) takes one value of
these, and shows it on every connection.
"""

from __future__ import annotations

import ssl
from typing import Protocol


class SaslExchange(Protocol):
    """The client side of one SASL authentication (Java's `SaslClient`)."""

    @property
    def mechanism(self) -> str:
        """The mechanism's registered name."""
        ...

    @property
    def is_complete(self) -> bool:
        """True when no further token is to be sent."""
        ...

    def step(self, challenge: bytes) -> bytes | None:
        """The next token for the broker; None: there is none to send. `challenge` is the broker's
        last one, empty at first.

        Raises KafkaError(SASL_AUTHENTICATION_FAILED) when the broker does not prove itself.
        """
        ...


class Credentials(Protocol):
    """What a client shows to every broker that it connects to."""

    def tls(self) -> ssl.SSLContext | None:
        """Settings of the TLS handshake; None: no TLS."""
        ...

    def sasl(self, host: str) -> SaslExchange | None:
        """A new exchange for a new connection to the broker at `host`; None: no SASL."""
        ...


class NoCredentials:
    """The credentials of a PLAINTEXT client: none."""

    def tls(self) -> None:
        """No TLS."""

    def sasl(self, host: str) -> None:
        """No SASL."""


NO_CREDENTIALS: Credentials = NoCredentials()
