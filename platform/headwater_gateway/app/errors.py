"""Error replies of the gateway: HTTP status, and Confluent's error code in the body."""

from __future__ import annotations

from headwater.errors import HeadwaterError


class GatewayError(HeadwaterError):
    """An error reply: `status` of HTTP, `code` in the body."""

    def __init__(self, status: int, code: int, message: str) -> None:
        self.status = status
        self.code = code
        super().__init__(message)


def unauthorized(detail: str = "give user and password of the brokers (Basic), or a token (Bearer)"
                 ) -> GatewayError:  # fmt: skip
    """Nobody has logged in, or the brokers refused the login."""
    return GatewayError(401, 40101, f"Unauthorized: {detail}")


def too_large(limit: int) -> GatewayError:
    """The body is too long."""
    return GatewayError(413, 413, f"the body is longer than {limit} bytes")


def overloaded(detail: str) -> GatewayError:
    """A limit of this process is reached; later it may work."""
    return GatewayError(429, 429, detail)


def unavailable(detail: str) -> GatewayError:
    """The brokers do not answer."""
    return GatewayError(503, 50302, f"the brokers do not answer: {detail}")
