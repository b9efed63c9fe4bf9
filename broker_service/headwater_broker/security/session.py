"""The session of one client connection: principal, host, listener, and the rights it was granted.

Kafka's `RequestContext` and `KafkaChannel` hold the same. A connection owns one session for its
life; authentication sets its principal, re-authentication (KIP-368) may set it again.
"""

from __future__ import annotations

from headwater.ports.authorizer import Authorizer, Operation, Principal, ResourceType

DECISIONS_MAX = 1_000
"""Decisions that a session remembers per operation and resource type; one more forgets them all."""


class Session:
    """Who sends the requests of one connection, from which host, over which listener."""

    __slots__ = ("_authorizer", "_decisions", "_generation", "host", "listener", "principal")

    def __init__(
        self,
        authorizer: Authorizer,
        *,
        listener: str,
        host: str = "",
        principal: Principal | None = None,
    ) -> None:
        self.listener = listener
        """Name of the listener that accepted the connection."""
        self.host = host
        """IP address of the client; "local" on a Unix socket."""
        self.principal = principal or Principal(listener=listener)
        self._authorizer = authorizer
        self._generation = authorizer.generation
        self._decisions: dict[int, dict[str, bool]] = {}

    def allows(self, operation: Operation, resource: ResourceType, name: str) -> bool:
        """True when the authorizer allows `operation` on the resource `name`.

        The decision is remembered until the authorizer's ACLs change (`Authorizer.generation`).
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
            by_name[name] = decision
        return decision

    def authenticated(self, principal: Principal) -> None:
        """Authentication succeeded: from now on the session speaks for `principal`."""
        self.principal = principal
        self.forget_decisions()

    def forget_decisions(self) -> None:
        """Ask the authorizer anew for every right."""
        self._decisions.clear()
        self._generation = self._authorizer.generation
