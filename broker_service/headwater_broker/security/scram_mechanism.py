"""SCRAM-SHA-256 and -512 on the broker's side: users, and delegation tokens (KIP-48).

Finds the user's stored keys; `scram_server` checks the client's proof.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass

from headwater.clock import Clock
from headwater.entropy import Entropy
from headwater.ports.authorizer import Principal
from headwater.security.scram_credential import (
    ITERATIONS_MIN,
    ScramCredential,
    ScramMechanism,
    credential_of_password,
    new_salt,
)
from headwater.security.scram_messages import ClientFirst, ScramError, new_nonce
from headwater_broker.security.delegation_tokens import TokenLogin
from headwater_broker.security.mechanism import Authenticated, AuthenticationFailedError
from headwater_broker.security.scram_credentials import ScramCredentials
from headwater_broker.security.scram_server import ScramServer
from headwater_broker.security.session import Session

TOKENS_MAX = 10_000
"""Derived credentials of delegation tokens that are kept; one more forgets them all."""

FindToken = Callable[[str], TokenLogin | None]
"""Token id -> the token; None: there is none."""


def no_tokens(token_id: str) -> None:
    """The broker has no delegation tokens (delegation.token.secret.key is unset)."""


@dataclass(frozen=True, slots=True)
class ScramParts:
    """The parts of the broker that SCRAM uses."""

    credentials: ScramCredentials
    clock: Clock
    entropy: Entropy
    find_token: FindToken = no_tokens


class ScramServerMechanism:
    """One of the two mechanisms (`headwater_broker.security.mechanism.Mechanism`)."""

    def __init__(self, mechanism: ScramMechanism, parts: ScramParts) -> None:
        self.name = mechanism.value
        self.mechanism = mechanism
        self.parts = parts
        self._of_tokens: dict[tuple[str, str], ScramCredential] = {}

    def begin(self, session: Session) -> ScramServerExchange:
        """A new exchange."""
        return ScramServerExchange(self, session.listener)

    async def token_credential(self, token_id: str, secret: str) -> ScramCredential:
        """The credential of a delegation token, whose password is its HMAC: derived once, in a
        thread (5 ms)."""
        known = self._of_tokens.get((token_id, secret))
        if known is None:
            if len(self._of_tokens) >= TOKENS_MAX:
                self._of_tokens.clear()
            salt = new_salt(self.parts.entropy)
            known = await asyncio.to_thread(
                credential_of_password, self.mechanism, secret, salt, ITERATIONS_MIN
            )
            self._of_tokens[token_id, secret] = known
        return known


class ScramServerExchange:
    """The two messages of one client, and the answers."""

    def __init__(self, owner: ScramServerMechanism, listener: str) -> None:
        self.result: Authenticated | None = None
        self.refusal = ""
        self._owner = owner
        self._listener = listener
        self._server = ScramServer(owner.mechanism, new_nonce(owner.parts.entropy))
        self._outcome: Authenticated | None = None
        """The identity that a right proof will prove; None: the user does not exist."""
        self._first: ClientFirst | None = None

    async def step(self, token: bytes) -> bytes:
        """The answer to the client's message. Raises AuthenticationFailedError."""
        name = "" if self._first is None else f"user {self._first.username[:100]!r}: "
        try:
            if self._first is None:
                self._first = self._server.begin(token)
                return self._server.challenge(await self._credential(self._first))
            answer = self._server.finish(token)
        except ScramError as error:
            raise AuthenticationFailedError(f"{name}{error}") from None
        if self._outcome is None:
            raise AuthenticationFailedError(f"{name}there is no such user")
        if self._outcome.is_token:
            self._outcome = self._of_token(self._first.username)
        if self._outcome is None:
            raise AuthenticationFailedError(f"{name}the token has expired")
        self.result = self._outcome
        return answer

    def _of_token(self, token_id: str) -> Authenticated | None:
        """The identity that a token proves now; a client may take long between its two messages."""
        parts = self._owner.parts
        token = parts.find_token(token_id)
        left_ms = 0 if token is None else token.expiry_ms - parts.clock.now_ms()
        if token is None or left_ms <= 0:
            return None
        owned = Principal(token.owner.kind, token.owner.name, self._listener)
        return Authenticated(owned, left_ms, is_token=True)

    async def _credential(self, first: ClientFirst) -> ScramCredential:
        owner, name = self._owner, first.username
        parts = owner.parts
        if not first.is_token:
            found = parts.credentials.find(owner.mechanism, name)
            if found is not None:
                self._outcome = Authenticated(Principal("User", name, self._listener))
            return found or parts.credentials.stand_in(owner.mechanism, name)
        token = parts.find_token(name)
        if token is None:
            return parts.credentials.stand_in(owner.mechanism, name)
        self._outcome = self._of_token(name)
        return await owner.token_credential(name, b64encode(token.hmac).decode())
