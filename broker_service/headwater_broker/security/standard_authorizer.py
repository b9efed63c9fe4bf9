"""The authorizer that decides by ACLs: Kafka's `StandardAuthorizer` and its data (KIP-11, KIP-290).

Super users first; then the ACLs; then `allow.everyone.if.no.acl.found`. Until the ACLs are loaded
everybody but super users is refused. A matching DENY wins over every ALLOW. ALLOW of an operation
may imply Describe or DescribeConfigs; DENY never implies anything.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from headwater.config.keys import Values
from headwater.errors import UsageError
from headwater.ports.authorizer import Operation, Requester, ResourceType
from headwater.security.acl import (
    WILDCARD,
    WILDCARD_PRINCIPAL,
    AclBinding,
    AclFilter,
    PatternType,
    PermissionType,
)
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
    def from_values(cls, values: Values, audit: AuditLog) -> StandardAuthorizer:
        """The authorizer of a broker's settings. Raises UsageError when it has no super users."""
        users = super_users(values.string("super.users"))
        if not users:
            raise UsageError(
                "config authorizer.class.name: an authorizer without super.users refuses brokers "
                "and administrators alike: set super.users=User:name"
            )
        everyone = values.boolean("allow.everyone.if.no.acl.found")
        return cls(users, audit, allow_without_acls=everyone)

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


_IMPLIED_BY = {
    Operation.DESCRIBE: frozenset(
        (
            Operation.DESCRIBE,
            Operation.READ,
            Operation.WRITE,
            Operation.DELETE,
            Operation.ALTER,
        )
    ),
    Operation.DESCRIBE_CONFIGS: frozenset((Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)),
}


_Key = TypeVar("_Key")


ANY_RESOURCE = "hardcode"
"""The name that Kafka's `authorizeByResourceType` asks for first (KIP-679)."""


@dataclass(frozen=True, slots=True, order=True)
class ResourcePattern:
    """The resources that a group of ACLs is for."""

    resource_type: ResourceType
    name: str
    pattern_type: PatternType


@dataclass(frozen=True, slots=True)
class Subject:
    """The requester: a principal as ACLs write it, and a host of `plain_host`."""

    principal: str
    host: str


@dataclass(frozen=True, slots=True)
class Rule:
    """A decision. `acl` made it; None: no ACL matched."""

    allowed: bool
    acl: AclBinding | None = None
    is_default: bool = False
    """True when the resource has no ACLs at all."""

    def __str__(self) -> str:
        """As Kafka's audit lines name it."""
        if self.acl is not None:
            return f"MatchingAcl(acl={self.acl})"
        return "DefaultAllow" if self.allowed else "DefaultDeny"


def pattern_of(acl: AclBinding) -> ResourcePattern:
    """The resources that the ACL is for."""
    return ResourcePattern(acl.resource_type, acl.name, acl.pattern_type)


@lru_cache(maxsize=4096)
def plain_host(host: str) -> str:
    """One spelling per address: IPv4-mapped IPv6 addresses become IPv4 ones."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


class AclMatcher:
    """All ACLs of a cluster, found by resource name in time that does not grow with their number.

    A name has one literal entry, the entry `*`, and one prefixed entry per length of prefix.
    """

    def __init__(self, acls: Iterable[AclBinding] = ()) -> None:
        self._literal: dict[tuple[ResourceType, str], tuple[AclBinding, ...]] = {}
        self._prefixed: dict[ResourceType, dict[int, dict[str, tuple[AclBinding, ...]]]] = {}
        by_pattern: dict[ResourcePattern, list[AclBinding]] = {}
        for acl in acls:
            by_pattern.setdefault(pattern_of(acl), []).append(acl)
        for pattern, rows in by_pattern.items():
            self.replace(pattern, rows)

    def replace(self, pattern: ResourcePattern, acls: Iterable[AclBinding]) -> None:
        """Set the ACLs of one pattern; none removes it."""
        rows = tuple(sorted(set(acls)))
        if pattern.pattern_type is PatternType.LITERAL:
            _put(self._literal, (pattern.resource_type, pattern.name), rows)
            return
        lengths = self._prefixed.setdefault(pattern.resource_type, {})
        names = lengths.setdefault(len(pattern.name), {})
        _put(names, pattern.name, rows)
        if not names:
            del lengths[len(pattern.name)]

    def __iter__(self) -> Iterator[AclBinding]:
        for rows in self._literal.values():
            yield from rows
        for lengths in self._prefixed.values():
            for names in lengths.values():
                for rows in names.values():
                    yield from rows

    def selected(self, wanted: AclFilter) -> list[AclBinding]:
        """The ACLs that the filter selects, sorted."""
        return sorted(acl for acl in self if wanted.matches(acl))

    def decide(
        self,
        subject: Subject,
        operation: Operation,
        resource: ResourceType,
        name: str,
        *,
        allow_without_acls: bool = False,
    ) -> Rule:
        """The rule that applies to one operation on one resource."""
        allow: AclBinding | None = None
        has_acls = False
        for rows in self._groups(resource, name):
            has_acls = True
            for acl in rows:
                if not _is_for(acl, subject) or not _covers(acl, operation):
                    continue
                if acl.permission is PermissionType.DENY:
                    return Rule(allowed=False, acl=acl)
                allow = allow or acl
        if allow is not None:
            return Rule(allowed=True, acl=allow)
        return Rule(allowed=not has_acls and allow_without_acls, is_default=not has_acls)

    def decide_any(
        self,
        subject: Subject,
        operation: Operation,
        resource: ResourceType,
        *,
        allow_without_acls: bool = False,
    ) -> bool:
        """True when some resource of the type is allowed (KIP-679).

        A DENY of `*` refuses all. Else an ALLOW counts unless a DENY covers all that it names.
        """
        first = self.decide(
            subject, operation, resource, ANY_RESOURCE, allow_without_acls=allow_without_acls
        )
        if first.allowed:
            return True
        denied, allowed = self._direct(subject, operation, resource)
        everything = (PatternType.LITERAL, WILDCARD)
        if everything in denied:
            return False
        if everything in allowed:
            return True
        return any(not _is_dominated(pattern, name, denied) for pattern, name in allowed)

    def _direct(
        self, subject: Subject, operation: Operation, resource: ResourceType
    ) -> tuple[set[tuple[PatternType, str]], set[tuple[PatternType, str]]]:
        """(denied, allowed) patterns; implied operations do not count here, as in Kafka."""
        denied: set[tuple[PatternType, str]] = set()
        allowed: set[tuple[PatternType, str]] = set()
        for acl in self:
            if (
                acl.resource_type is resource
                and acl.operation in (operation, Operation.ALL)
                and _is_for(acl, subject)
            ):
                found = denied if acl.permission is PermissionType.DENY else allowed
                found.add((acl.pattern_type, acl.name))
        return denied, allowed

    def _groups(self, resource: ResourceType, name: str) -> Iterator[tuple[AclBinding, ...]]:
        """The ACLs that apply to the name, pattern by pattern."""
        literal = self._literal
        if rows := literal.get((resource, name)):
            yield rows
        if name != WILDCARD and (rows := literal.get((resource, WILDCARD))):
            yield rows
        for length, names in self._prefixed.get(resource, {}).items():
            if length <= len(name) and (rows := names.get(name[:length])):
                yield rows


def _put(
    table: dict[_Key, tuple[AclBinding, ...]], key: _Key, rows: tuple[AclBinding, ...]
) -> None:
    if rows:
        table[key] = rows
    else:
        table.pop(key, None)


def _is_for(acl: AclBinding, subject: Subject) -> bool:
    return acl.principal in (subject.principal, WILDCARD_PRINCIPAL) and (
        acl.host == WILDCARD or plain_host(acl.host) == subject.host
    )


def _covers(acl: AclBinding, operation: Operation) -> bool:
    if acl.operation in (operation, Operation.ALL):
        return True
    if acl.permission is PermissionType.DENY:
        return False
    return acl.operation in _IMPLIED_BY.get(operation, ())


def _is_dominated(pattern: PatternType, name: str, denied: set[tuple[PatternType, str]]) -> bool:
    """True when a DENY covers every resource of an ALLOW."""
    if pattern is PatternType.LITERAL and (pattern, name) in denied:
        return True
    return any((PatternType.PREFIXED, name[:end]) in denied for end in range(1, len(name) + 1))
