"""The client's side of SCRAM (RFC 5802, RFC 7677), without I/O: Kafka's `ScramSaslClient`.

Neither side learns the password of the other, and each proves that it knows it. The broker's side
is `headwater_broker.security.scram_server`.
"""

from __future__ import annotations

import hmac

from headwater.entropy import Entropy
from headwater.errors import ErrorCode, KafkaError, UsageError
from headwater.security.scram_credential import (
    ITERATIONS_MIN,
    exclusive_or,
    hashed,
    keyed,
    salted_password,
    scram_mechanism,
)
from headwater.security.scram_messages import (
    TOKEN_EXTENSION,
    ScramError,
    encoded,
    escape_name,
    new_nonce,
    parse_server_final,
    parse_server_first,
)
from headwater.system import SystemEntropy

ITERATIONS_CLIENT_MAX = 1_000_000
"""More rounds than these (about a second) are an attack on the client."""


class ScramExchange:
    """The client's side (`headwater.ports.credentials.SaslExchange`)."""

    def __init__(
        self,
        mechanism: str,
        username: str,
        password: str,
        is_token: bool = False,
        *,
        entropy: Entropy | None = None,
    ) -> None:
        """With `is_token`, name and password are a delegation token's id and HMAC (in base64).

        Raises UsageError for an unknown mechanism, or a name that messages cannot hold.
        """
        if not username or "\0" in username:
            raise UsageError("the user name of SCRAM is empty or has a NUL character: give another")
        self.mechanism = mechanism
        self.is_complete = False
        self._mechanism = scram_mechanism(mechanism)
        self._password = password
        self._nonce = new_nonce(entropy or SystemEntropy())
        extension = f",{TOKEN_EXTENSION}=true" if is_token else ""
        self._bare = f"n={escape_name(username)},r={self._nonce}{extension}"
        self._signature: bytes | None = None
        """What the broker has to send at last."""
        self._is_begun = False

    def step(self, challenge: bytes) -> bytes | None:
        """The next message; None after the broker's last one.

        Raises KafkaError(SASL_AUTHENTICATION_FAILED) when the broker's message is not SCRAM's or
        does not prove that it knows the user's keys.
        """
        try:
            if not self._is_begun:
                self._is_begun = True
                return f"n,,{self._bare}".encode()
            if self._signature is None:
                return self._proof(challenge)
            if not hmac.compare_digest(parse_server_final(challenge), self._signature):
                raise ScramError("the broker does not know the password: is it the right broker?")
        except ScramError as error:
            text = f"{self.mechanism}: {error}"
            raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, text) from None
        self.is_complete = True
        return None

    def _proof(self, challenge: bytes) -> bytes:
        first = parse_server_first(challenge)
        if not first.nonce.startswith(self._nonce) or first.nonce == self._nonce:
            raise ScramError("the nonce of the broker does not follow the one of the client")
        if not ITERATIONS_MIN <= first.iterations <= ITERATIONS_CLIENT_MAX:
            raise ScramError(
                f"the broker asks for {first.iterations} iterations, "
                f"not for {ITERATIONS_MIN} to {ITERATIONS_CLIENT_MAX}"
            )
        if not first.salt:
            raise ScramError("the broker sends no salt")
        mechanism = self._mechanism
        salted = salted_password(mechanism, self._password, first.salt, first.iterations)
        unproved = f"c={encoded(b'n,,')},r={first.nonce}"
        signed = ",".join((self._bare, challenge.decode(), unproved)).encode()
        client_key = keyed(mechanism, salted, b"Client Key")
        signature = keyed(mechanism, hashed(mechanism, client_key), signed)
        self._signature = keyed(mechanism, keyed(mechanism, salted, b"Server Key"), signed)
        return f"{unproved},p={encoded(exclusive_or(client_key, signature))}".encode()
