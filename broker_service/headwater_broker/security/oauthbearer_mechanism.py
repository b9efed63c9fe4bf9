"""OAUTHBEARER on the broker's side (RFC 7628, KIP-255, KIP-768)."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from headwater.clock import Clock
from headwater.ports.authorizer import Principal
from headwater.security.oauthbearer import (
    INVALID_TOKEN,
    OAUTHBEARER,
    OAuthBearerError,
    OAuthBearerMessage,
    parse_message,
)
from headwater_broker.security.jwks import Jwks
from headwater_broker.security.jwt_validation import (
    JwtRules,
    TokenError,
    UnknownKeyError,
    ValidToken,
)
from headwater_broker.security.mechanism import Authenticated, AuthenticationFailedError
from headwater_broker.security.session import Session

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OAuthBearerMechanism:
    """Checks tokens (`headwater_broker.security.mechanism.Mechanism`)."""

    rules: JwtRules
    jwks: Jwks
    clock: Clock
    name: str = OAUTHBEARER

    def begin(self, session: Session) -> OAuthBearerServerExchange:
        """A new exchange."""
        return OAuthBearerServerExchange(self, session.listener)

    async def validate(self, token: str) -> ValidToken:
        """The claims of the token. Raises TokenError."""
        self.jwks.refresh_if_due()
        try:
            return self._validate(token)
        except UnknownKeyError:
            if not await self.jwks.refresh_for_unknown_key():
                raise
        return self._validate(token)

    def _validate(self, token: str) -> ValidToken:
        return self.rules.validate(token, self.jwks.keys, self.clock.now_ms() / 1000)


class OAuthBearerServerExchange:
    """The message of one client; after a refusal, the client's acknowledgement."""

    def __init__(self, owner: OAuthBearerMechanism, listener: str) -> None:
        self.result: Authenticated | None = None
        self._owner = owner
        self._listener = listener
        self.refusal = ""

    async def step(self, token: bytes) -> bytes:
        """The answer to a message. A refused token gets an error first, which the client
        acknowledges (RFC 7628, 3.2.3). Raises AuthenticationFailedError."""
        if self.refusal:
            raise AuthenticationFailedError(self.refusal)
        try:
            message = parse_message(token)
        except OAuthBearerError as error:
            raise AuthenticationFailedError(str(error)) from None
        try:
            found = await self._checked(message)
        except TokenError as error:
            self.refusal = str(error)
            return INVALID_TOKEN
        now_ms = self._owner.clock.now_ms()
        self.result = Authenticated(
            Principal("User", found.subject, self._listener),
            lifetime_ms=max(int(found.expiry_s * 1000) - now_ms, 1),
        )
        return b""

    async def _checked(self, message: OAuthBearerMessage) -> ValidToken:
        found = await self._owner.validate(message.token)
        if message.authorization_id not in ("", found.subject):
            raise TokenError("the client asks to be somebody else than the token's subject")
        return found
