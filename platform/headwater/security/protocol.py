"""Security protocols of listeners (Kafka's `SecurityProtocol`)."""

from __future__ import annotations

from enum import Enum

from headwater.errors import UsageError


class SecurityProtocol(Enum):
    """How connections of a listener are encrypted and authenticated."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def uses_tls(self) -> bool:
        """True where TLS encrypts the connection."""
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def uses_sasl(self) -> bool:
        """True where SASL authenticates the client."""
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


def security_protocol(text: str, key: str = "security.protocol") -> SecurityProtocol:
    """The protocol by its name. Raises UsageError that names `key`."""
    try:
        return SecurityProtocol[text.strip().upper()]
    except KeyError:
        names = ", ".join(p.name for p in SecurityProtocol)
        raise UsageError(f"{key} is {text!r}: use one of {names}") from None
