"""The session of one client connection: principal, host, listener, and the rights it was granted.

Kafka's `RequestContext` and `KafkaChannel` hold the same. A connection owns one session for its
life. Authentication sets the principal; re-authentication (KIP-368) must confirm it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Protocol

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Authorizer, Operation, Principal, ResourceType
from headwater.security.protocol import SecurityProtocol
from headwater_broker.security.authentication_gate import AuthenticationGate, Authenticator

DECISIONS_MAX = 1_000
"""Decisions that a session remembers per operation and resource type; one more forgets them all."""

_numbers = count(1)


class MakeAuthenticator(Protocol):
    """Makes the SASL authenticator of a new session."""

    def __call__(self, session: Session, /) -> Authenticator:
        """The authenticator, which authenticates this session."""
        ...


class Session:
    """The principal behind a connection, its host and listener, and its remembered rights."""

    __slots__ = (
        "_authorizer",
        "_decisions",
        "_generation",
        "_revision",
        "asks_quietly",
        "authenticator",
        "gate",
        "host",
        "is_authenticated",
        "is_token",
        "listener",
        "number",
        "principal",
        "security_protocol",
    )

    def __init__(
        self,
        authorizer: Authorizer,
        *,
        listener: str,
        host: str = "",
        principal: Principal | None = None,
        security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT,
        gate: AuthenticationGate | None = None,
        make_authenticator: MakeAuthenticator | None = None,
    ) -> None:
        self.listener = listener
        """Name of the listener that accepted the connection."""
        self.host = host
        """IP address of the client; "local" on a Unix socket."""
        self.number = next(_numbers)
        """Rises with each connection: of two, the one with the lower number is the older one."""
        self.principal = principal or Principal(listener=listener)
        self.security_protocol = security_protocol
        self.is_authenticated = False
        """True once authentication has set the principal."""
        self.is_token = False
        """True when the client logged in with a delegation token: it may not make another one."""
        self.gate = gate
        """None where the listener requires no authentication."""
        self.asks_quietly = False
        """See `quietly`."""
        self._authorizer = authorizer
        self._generation = authorizer.generation
        self._decisions: dict[int, dict[str, bool]] = {}
        self._revision = 0
        self.authenticator: Authenticator | None = (
            None if make_authenticator is None else make_authenticator(self)
        )
        """None on listeners without SASL."""

    @property
    def revision(self) -> int:
        """A number that changes whenever decisions are forgotten."""
        if self._generation != self._authorizer.generation:
            self.forget_decisions()
        return self._revision

    def allows(self, operation: Operation, resource: ResourceType, name: str) -> bool:
        """True when the authorizer allows `operation` on the resource `name`.

        An approval is remembered until the authorizer's ACLs change (`Authorizer.generation`). A
        denial is decided each time, so that the audit lines count them all.
        """
        if self._generation != self._authorizer.generation:
            self.forget_decisions()
        by_name = self._decisions.get(operation << 8 | resource)
        if by_name is None:
            by_name = self._decisions[operation << 8 | resource] = {}
        decision = by_name.get(name)
        if decision is None:
            if len(by_name) >= DECISIONS_MAX:
                by_name.clear()
            decision = self._authorizer.authorize(self, operation, resource, name)
            if decision:
                by_name[name] = decision
        return decision

    def has_allowed(self, operation: Operation, resource: ResourceType, name: str) -> bool:
        """True when an approval is remembered. False says nothing: `allows` decides."""
        if self._generation != self._authorizer.generation:
            return False
        by_name = self._decisions.get(operation << 8 | resource)
        return by_name is not None and name in by_name

    @contextmanager
    def quietly(self) -> Iterator[None]:
        """Denials in this block are no refused attempts, and are not audited: lists that leave out
        what may not be seen, and authorized operations (KIP-430)."""
        before, self.asks_quietly = self.asks_quietly, True
        try:
            yield
        finally:
            self.asks_quietly = before

    def allows_any(self, operation: Operation, resource: ResourceType) -> bool:
        """True when the authorizer allows `operation` on some resource of this type."""
        return self._authorizer.authorize_any(self, operation, resource)

    def authenticate(
        self, principal: Principal, lifetime_ms: int | None = None, *, is_token: bool = False
    ) -> None:
        """The client has proved to be `principal`; after `lifetime_ms` it must do so again.

        Raises KafkaError(SASL_AUTHENTICATION_FAILED) when a re-authentication names another
        principal than before: parked requests and remembered state belong to the first one.
        """
        if self.is_authenticated and principal != self.principal:
            raise KafkaError(
                ErrorCode.SASL_AUTHENTICATION_FAILED,
                f"{self.principal.kind}:{self.principal.name} cannot become "
                f"{principal.kind}:{principal.name} by re-authentication",
            )
        self.principal = principal
        self.is_authenticated = True
        self.is_token = is_token
        self.forget_decisions()
        if self.gate is not None:
            self.gate.open(lifetime_ms)

    def forget_decisions(self) -> None:
        """Forget all remembered decisions of the authorizer."""
        self._decisions.clear()
        self._revision += 1
        self._generation = self._authorizer.generation
