"""A SASL mechanism on the broker's side (Java's `SaslServer` and its factory), as protocols.

`sasl_server_authenticator` runs one exchange per authentication. PLAIN, SCRAM, OAUTHBEARER and
GSSAPI each implement these two; `app.sasl_listeners.BUILDERS` builds them by name, and
`config.rows_security` lists the names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from headwater.errors import HeadwaterError
from headwater.ports.authorizer import Principal
from headwater_broker.security.session import Session


class AuthenticationFailedError(HeadwaterError):
    """The client did not prove its identity. The message is for the broker's log only."""


@dataclass(frozen=True, slots=True)
class Authenticated:
    """The identity that a completed exchange has proved."""

    principal: Principal
    lifetime_ms: int | None = None
    """How long the credential is valid; None: for good."""
    is_token: bool = False
    """True for a delegation token; `principal` is its owner."""


class ServerExchange(Protocol):
    """One authentication of one client."""

    @property
    def result(self) -> Authenticated | None:
        """None until the client has proved its identity."""
        ...

    @property
    def refusal(self) -> str:
        """Why the client is refused, for the broker's log, once an answer that it must
        acknowledge has the refusal; else empty."""
        ...

    async def step(self, token: bytes) -> bytes:
        """The answer to the client's next token. Raises AuthenticationFailedError.

        It runs on the broker's loop; work of more than 0.1 ms goes to a thread.
        """
        ...


class Mechanism(Protocol):
    """A mechanism that a listener has enabled."""

    @property
    def name(self) -> str:
        """Its registered name."""
        ...

    def begin(self, session: Session) -> ServerExchange:
        """A new exchange for a client that chose this mechanism."""
        ...
