"""SASL of one connection on the broker's side (Kafka's `SaslServerAuthenticator`; KIP-43, KIP-152).

SaslHandshake chooses a mechanism, SaslAuthenticate carries its tokens until the client has proved
its identity or failed; a failure closes the connection. A second handshake on an authenticated
connection begins a re-authentication (KIP-368): same mechanism, same principal.

All failures have one text for the client: neither it nor its time tells whether a user exists. The
broker's log has the reason.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from headwater.errors import ErrorCode, KafkaError
from headwater_broker.security.authentication_gate import Handshake, TokenAnswer
from headwater_broker.security.mechanism import (
    Authenticated,
    AuthenticationFailedError,
    Mechanism,
    ServerExchange,
)
from headwater_broker.security.session import Session

logger = logging.getLogger(__name__)

FailureDelay = Callable[[str], Awaitable[None]]
"""Host -> returns when a failed authentication from there may be answered."""


async def no_delay(host: str) -> None:
    """Failures are answered at once."""


@dataclass(frozen=True, slots=True)
class SaslListener:
    """The mechanisms and settings that the authenticators of a listener share."""

    mechanisms: Mapping[str, Mechanism]
    """The enabled mechanisms by name."""
    max_reauth_ms: Mapping[str, int]
    """connections.max.reauth.ms by mechanism; 0: as long as the credential."""
    failure_delay: FailureDelay = no_delay

    def authenticator(self, session: Session) -> SaslServerAuthenticator:
        """The authenticator of a new connection."""
        return SaslServerAuthenticator(self, session)


class SaslServerAuthenticator:
    """The authentication, and the re-authentications, of one connection."""

    def __init__(self, listener: SaslListener, session: Session) -> None:
        self._listener = listener
        self._session = session
        self._mechanism = ""
        """The mechanism of the last handshake."""
        self._proved = ""
        """The mechanism by which the session was authenticated."""
        self._exchange: ServerExchange | None = None

    def handshake(self, mechanism: str, version: int) -> Handshake:
        """Choose a mechanism. An unknown one closes the connection, after the reply."""
        names = tuple(self._listener.mechanisms)
        session, gate = self._session, self._session.gate
        is_repeated = self._exchange is not None or (version == 0 and session.is_authenticated)
        known = self._listener.mechanisms.get(mechanism)
        if gate is None or is_repeated:
            error = ErrorCode.ILLEGAL_SASL_STATE
        elif known is None:
            error = ErrorCode.UNSUPPORTED_SASL_MECHANISM
        else:
            if gate.is_open:
                gate.shut()
            self._mechanism = mechanism
            self._exchange = known.begin(session)
            return Handshake(ErrorCode.NONE, names)
        self._exchange = None
        if gate is not None:
            gate.refuse(f"{error.name}: handshake for mechanism {mechanism[:40]!r}")
        return Handshake(error, names)

    async def authenticate(self, token: bytes) -> TokenAnswer:
        """Give the mechanism the client's next token. A failure closes the connection."""
        exchange = self._exchange
        if exchange is None:
            return self._out_of_order()
        try:
            if self._proved not in ("", self._mechanism):
                raise KafkaError(
                    ErrorCode.SASL_AUTHENTICATION_FAILED,
                    f"SASL mechanism '{self._mechanism}' requested by client is not supported for "
                    f"re-authentication of mechanism '{self._proved}'",
                )
            if exchange.refusal:  # the client's acknowledgement of a failure that is counted
                return self._refused(self._one_text())
            answer = await exchange.step(token)
            if exchange.refusal:
                await self._count_failure(exchange.refusal)
            if exchange.result is None:
                return TokenAnswer(token=answer)
            return TokenAnswer(token=answer, lifetime_ms=self._completed(exchange.result))
        except AuthenticationFailedError as error:
            return await self._failed(self._one_text(), str(error))
        except KafkaError as error:  # its text is meant for the client
            return await self._failed(error.detail, error.detail)

    def _completed(self, result: Authenticated) -> int:
        """Open the session; its lifetime for the client (KIP-368)."""
        longest = self._listener.max_reauth_ms.get(self._mechanism, 0)
        limits = [ms for ms in (result.lifetime_ms, longest or None) if ms is not None]
        lifetime_ms = max(min(limits), 0) if limits else None
        self._exchange = None
        self._session.authenticate(result.principal, lifetime_ms, is_token=result.is_token)
        self._proved = self._mechanism
        return lifetime_ms or 0

    def _one_text(self) -> str:
        what = "re-authentication" if self._session.is_authenticated else "authentication"
        return (
            f"Authentication failed during {what} due to invalid credentials with "
            f"SASL mechanism {self._mechanism}"
        )

    async def _failed(self, text: str, reason: str) -> TokenAnswer:
        await self._count_failure(reason)
        return self._refused(text)

    async def _count_failure(self, reason: str) -> None:
        """Log a failure; return when it may be answered."""
        session = self._session
        logger.info(
            "failed authentication of %s by %s on %s: %s",
            session.host,
            self._mechanism,
            session.listener,
            reason,
        )
        await self._listener.failure_delay(session.host)

    def _refused(self, text: str) -> TokenAnswer:
        self._exchange = None
        if self._session.gate is not None:
            self._session.gate.refuse("authentication failed")
        return TokenAnswer(ErrorCode.SASL_AUTHENTICATION_FAILED, text)

    def _out_of_order(self) -> TokenAnswer:
        """A token without a handshake before it. On an open session it changes nothing."""
        gate = self._session.gate
        if gate is not None and not gate.is_open:
            gate.refuse("a SASL token without a handshake")
        text = "SaslAuthenticate must follow SaslHandshake"
        return TokenAnswer(ErrorCode.ILLEGAL_SASL_STATE, text)
