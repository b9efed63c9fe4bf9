"""The broker's side of SCRAM (RFC 5802, RFC 7677), without I/O: Kafka's `ScramSaslServer`.

Checks the client's proof with the user's keys, which `scram_mechanism` finds; it never has the
password. The client's side is `headwater.security.scram_exchange`.
"""

from __future__ import annotations

import hmac

from headwater.security.scram_credential import (
    ITERATIONS_MIN,
    ScramCredential,
    ScramMechanism,
    exclusive_or,
    hashed,
    keyed,
)
from headwater.security.scram_messages import (
    ClientFirst,
    ScramError,
    encoded,
    parse_client_final,
    parse_client_first,
)


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
        client_key = exclusive_or(signature, final.proof)
        if not hmac.compare_digest(hashed(mechanism, client_key), credential.stored_key):
            raise ScramError("the proof is wrong")
        return f"v={encoded(keyed(mechanism, credential.server_key, signed))}".encode()
