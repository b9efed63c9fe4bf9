"""PLAIN on the broker's side: users of `listener.name.<listener>.plain.sasl.jaas.config`."""

from __future__ import annotations

from collections.abc import Mapping

from headwater.ports.authorizer import Principal
from headwater.security.plain import PLAIN, PlainError, parse_plain, verify_plain
from headwater_broker.security.mechanism import Authenticated, AuthenticationFailedError
from headwater_broker.security.session import Session


class PlainMechanism:
    """Checks passwords against a list (`headwater_broker.security.mechanism.Mechanism`)."""

    name = PLAIN

    def __init__(self, passwords: Mapping[str, str]) -> None:
        """`passwords`: user name -> password."""
        self._passwords = passwords

    def begin(self, session: Session) -> PlainServerExchange:
        """A new exchange."""
        return PlainServerExchange(self._passwords, session.listener)


class PlainServerExchange:
    """One message of one client."""

    def __init__(self, passwords: Mapping[str, str], listener: str) -> None:
        self._passwords = passwords
        self._listener = listener
        self.result: Authenticated | None = None
        self.refusal = ""

    async def step(self, token: bytes) -> bytes:
        """The client's message. Raises AuthenticationFailedError."""
        try:
            message = parse_plain(token)
        except PlainError as error:
            raise AuthenticationFailedError(str(error)) from None
        if not verify_plain(message, self._passwords):
            raise AuthenticationFailedError(f"user {message.username[:100]!r}: wrong password")
        self.result = Authenticated(Principal("User", message.username, self._listener))
        return b""
