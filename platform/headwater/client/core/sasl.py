"""The requests of a SASL authentication, whatever its mechanism (KIP-43, KIP-152)."""

from __future__ import annotations

from collections.abc import Generator

from headwater.client.errors import kafka_error
from headwater.entropy import Entropy
from headwater.ports.credentials import SaslExchange
from headwater.wire.apis.k17_sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from headwater.wire.apis.k36_sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)

HANDSHAKE_VERSION = 1
"""Tokens then go in SaslAuthenticate requests."""
AUTHENTICATE_VERSION = 2

SaslRequest = SaslHandshakeRequest | SaslAuthenticateRequest
SaslResponse = SaslHandshakeResponse | SaslAuthenticateResponse
SaslCall = tuple[SaslRequest, type[SaslResponse], int]
"""Request, type of its response, version of both."""


REAUTHENTICATE_FROM, REAUTHENTICATE_TO = 0.85, 0.95
"""Part of its lifetime after which a session is authenticated again, drawn as Kafka does."""


def reauthenticate_after_s(lifetime_ms: int, entropy: Entropy) -> float:
    """How long to wait before the next authentication (KIP-368)."""
    return lifetime_ms / 1000 * entropy.uniform(REAUTHENTICATE_FROM, REAUTHENTICATE_TO)


def sasl_calls(exchange: SaslExchange) -> Generator[SaslCall, SaslResponse, int]:
    """Yield the calls to make, in order; `send` the response of each. Returns the lifetime of the
    session in ms; 0: for good.

    Raises KafkaError when the broker knows no such mechanism or refuses the credentials.
    """
    handshake = SaslHandshakeRequest(mechanism=exchange.mechanism)
    response = yield handshake, SaslHandshakeResponse, HANDSHAKE_VERSION
    if response.error_code:
        known = ", ".join(getattr(response, "mechanisms", ())) or "none"
        raise kafka_error(response.error_code, f"{exchange.mechanism}: the broker has {known}")
    challenge, lifetime_ms = b"", 0
    while not exchange.is_complete:
        token = exchange.step(challenge)
        if token is None:
            break
        request = SaslAuthenticateRequest(auth_bytes=token)
        response = yield request, SaslAuthenticateResponse, AUTHENTICATE_VERSION
        assert isinstance(response, SaslAuthenticateResponse)
        if response.error_code:
            raise kafka_error(response.error_code, response.error_message or exchange.mechanism)
        challenge, lifetime_ms = bytes(response.auth_bytes), response.session_lifetime_ms
    return lifetime_ms


def next_call(
    calls: Generator[SaslCall, SaslResponse, int], response: SaslResponse | None
) -> SaslCall | int:
    """The next of `sasl_calls`, given the response to the one before (None at first); at their end
    the lifetime of the session."""
    try:
        return next(calls) if response is None else calls.send(response)
    except StopIteration as end:
        return int(end.value)
