"""SCRAM (RFC 5802, RFC 7677): both sides of the exchange, without I/O.

Kafka's `ScramSaslServer` and `ScramSaslClient`. Neither side learns the password of the other, and
each proves that it knows it. The server knows keys only (`scram_credential`).
"""

from __future__ import annotations

import hmac

from headwater.entropy import Entropy
from headwater.errors import ErrorCode, KafkaError, UsageError
from headwater.security.scram_credential import (
    ITERATIONS_MIN,
    ScramCredential,
    ScramMechanism,
    hashed,
    keyed,
    salted_password,
    scram_mechanism,
)
from headwater.security.scram_messages import (
    TOKEN_EXTENSION,
    ClientFirst,
    ScramError,
    encoded,
    escape_name,
    parse_client_final,
    parse_client_first,
    parse_server_final,
    parse_server_first,
)
from headwater.system import SystemEntropy

NONCE_BYTES = 24
ITERATIONS_CLIENT_MAX = 1_000_000
"""More rounds than these (about a second) are an attack on the client."""


def new_nonce(entropy: Entropy) -> str:
    """One side's part of an exchange's nonce: it makes every exchange another one."""
    return encoded(entropy.randbytes(NONCE_BYTES))


def _exclusive_or(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))


class ScramServer:
    """The broker's side of one exchange: `begin`, `challenge`, `finish`, in this order, once."""

    def __init__(self, mechanism: ScramMechanism, nonce: str) -> None:
        self._mechanism = mechanism
        self._nonce = nonce
        self._first: ClientFirst | None = None
        self._server_first = ""
        self._credential: ScramCredential | None = None

    def begin(self, token: bytes) -> ClientFirst:
        """Read the client's first message. Raises ScramError."""
        if self._first is not None:
            raise ScramError("a second first message")
        first = parse_client_first(token)
        if first.authorization_id not in ("", first.username):
            raise ScramError("the authorization id is not the user name")
        self._first = first
        return first

    def challenge(self, credential: ScramCredential) -> bytes:
        """The broker's first message, for the credential of the user. Raises ScramError."""
        if self._first is None or self._credential is not None:
            raise ScramError("a challenge out of order")
        if credential.iterations < ITERATIONS_MIN:
            raise ScramError(f"the stored credential has {credential.iterations} iterations")
        self._credential = credential
        self._nonce = self._first.nonce + self._nonce
        self._server_first = (
            f"r={self._nonce},s={encoded(credential.salt)},i={credential.iterations}"
        )
        return self._server_first.encode()

    def finish(self, token: bytes) -> bytes:
        """Check the client's proof; the broker's signature. Raises ScramError.

        The nonce must be this exchange's (CVE-2024-56128), and the GS2 header the one that the
        exchange began with.
        """
        first, credential = self._first, self._credential
        self._credential = None
        if first is None or credential is None:
            raise ScramError("a final message out of order")
        final = parse_client_final(token)
        if not hmac.compare_digest(final.nonce, self._nonce):
            raise ScramError("the nonce of the final message is not the one of this exchange")
        if final.binding != first.header.encode():
            raise ScramError("the final message repeats another GS2 header")
        mechanism = self._mechanism
        signed = ",".join((first.bare, self._server_first, final.unproved)).encode()
        signature = keyed(mechanism, credential.stored_key, signed)
        if len(final.proof) != len(signature):
            raise ScramError("the proof has another size than the hash")
        client_key = _exclusive_or(signature, final.proof)
        if not hmac.compare_digest(hashed(mechanism, client_key), credential.stored_key):
            raise ScramError("the proof is wrong")
        return f"v={encoded(keyed(mechanism, credential.server_key, signed))}".encode()


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
        return f"{unproved},p={encoded(_exclusive_or(client_key, signature))}".encode()
