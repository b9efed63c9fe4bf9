"""The authorizer that decides by ACLs: Kafka's `StandardAuthorizer`.

Super users first; then the ACLs (`acl_matcher`); then `allow.everyone.if.no.acl.found`. Until the
ACLs are loaded everybody but super users is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headwater.clock import Clock
from headwater.config.keys import Values
from headwater.errors import UsageError
from headwater.ports.authorizer import Operation, Requester, ResourceType
from headwater.security.acl import AclBinding, AclFilter
from headwater_broker.security.acl_matcher import AclMatcher, ResourcePattern, Subject, plain_host
from headwater_broker.security.audit_log import AuditLog


def super_users(text: str) -> frozenset[str]:
    """The principals of `super.users`: `User:a;User:b`. Raises UsageError."""
    found = [part.strip() for part in text.split(";") if part.strip()]
    for principal in found:
        kind, colon, name = principal.partition(":")
        if not (kind and colon and name) or ",User:" in name.replace(" ", ""):
            raise UsageError(
                f"config super.users: {principal!r} is not Type:name: write User:name, "
                "several with ; between them"
            )
    return frozenset(found)


class StandardAuthorizer:
    """`headwater.ports.authorizer.Authorizer` over the ACLs of the cluster."""

    def __init__(
        self, users: frozenset[str], audit: AuditLog, *, allow_without_acls: bool = False
    ) -> None:
        self.audit = audit
        self.is_loaded = False
        self._super_users = users
        self._allow_without_acls = allow_without_acls
        self._acls = AclMatcher()
        self.generation = 0
        """Rises with every change of the ACLs."""

    @classmethod
    def from_values(cls, values: Values, clock: Clock) -> StandardAuthorizer:
        """The authorizer of a broker's settings. Raises UsageError when it has no super users."""
        users = super_users(values.string("super.users"))
        if not users:
            raise UsageError(
                "config authorizer.class.name: an authorizer without super.users refuses brokers "
                "and administrators alike: set super.users=User:name"
            )
        everyone = values.boolean("allow.everyone.if.no.acl.found")
        return cls(users, AuditLog(clock), allow_without_acls=everyone)

    def load(self, acls: Iterable[AclBinding]) -> None:
        """Replace all ACLs."""
        self._acls = AclMatcher(acls)
        self.is_loaded = True
        self.generation += 1

    def update(self, changed: Mapping[ResourcePattern, Iterable[AclBinding]]) -> None:
        """Replace the ACLs of some patterns."""
        for pattern, acls in changed.items():
            self._acls.replace(pattern, acls)
        self.generation += 1

    def acls(self, wanted: AclFilter) -> list[AclBinding]:
        """The ACLs that a filter selects, sorted."""
        return self._acls.selected(wanted)

    def authorize(
        self, requester: Requester, operation: Operation, resource: ResourceType, name: str
    ) -> bool:
        """True when `requester` may do `operation` on the resource `name`."""
        who = requester.principal
        principal = f"{who.kind}:{who.name}"
        host = plain_host(requester.host)
        rule: object
        if principal in self._super_users:
            allowed, rule = True, "SuperUser"
        elif not self.is_loaded:
            allowed, rule = False, "NotLoaded"
        else:
            found = self._acls.decide(
                Subject(principal, host),
                operation,
                resource,
                name,
                allow_without_acls=self._allow_without_acls,
            )
            allowed, rule = found.allowed, found
        if not requester.asks_quietly:
            self.audit.decided(
                principal, host, operation, resource, name, allowed=allowed, rule=rule
            )
        return allowed

    def authorize_any(
        self, requester: Requester, operation: Operation, resource: ResourceType
    ) -> bool:
        """True when `requester` may do `operation` on some resource of this type (KIP-679)."""
        who = requester.principal
        principal = f"{who.kind}:{who.name}"
        if principal in self._super_users:
            return True
        if not self.is_loaded:
            return False
        return self._acls.decide_any(
            Subject(principal, plain_host(requester.host)),
            operation,
            resource,
            allow_without_acls=self._allow_without_acls,
        )
