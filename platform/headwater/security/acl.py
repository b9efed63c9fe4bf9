"""ACL bindings and their filters (Kafka's `AclBinding`, `AclBindingFilter`; KIP-11, KIP-290)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from headwater.ports.authorizer import Operation, ResourceType

WILDCARD = "*"
"""As a literal resource name: every resource; as a host: every host."""
WILDCARD_PRINCIPAL = "User:*"
CLUSTER_NAME = "kafka-cluster"
"""The name of the one resource of type CLUSTER."""


class PatternType(IntEnum):
    """How the name of an ACL's resource is to be read, with the wire codes."""

    UNKNOWN = 0
    ANY = 1
    """In filters: every pattern type, and exactly this name."""
    MATCH = 2
    """In filters: every pattern that applies to this name."""
    LITERAL = 3
    PREFIXED = 4


class PermissionType(IntEnum):
    """Whether an ACL allows or denies, with the wire codes."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


@dataclass(frozen=True, slots=True, order=True)
class AclBinding:
    """One ACL: a resource pattern, and what it allows or denies to a principal from a host."""

    resource_type: ResourceType
    name: str
    pattern_type: PatternType
    principal: str
    """`User:alice`, or `User:*`."""
    host: str
    """An IP address, or `*`."""
    operation: Operation
    permission: PermissionType


@dataclass(frozen=True, slots=True)
class AclFilter:
    """Selects ACLs. None and ANY match everything; PatternType.MATCH as described there."""

    resource_type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: PermissionType = PermissionType.ANY

    @classmethod
    def exactly(cls, acl: AclBinding) -> AclFilter:
        """The filter that selects this ACL alone."""
        return cls(
            acl.resource_type,
            acl.name,
            acl.pattern_type,
            acl.principal,
            acl.host,
            acl.operation,
            acl.permission,
        )

    def matches(self, acl: AclBinding) -> bool:
        """True when the filter selects `acl`."""
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self._matches_pattern(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (PermissionType.ANY, acl.permission)
        )

    def _matches_pattern(self, acl: AclBinding) -> bool:
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
            return False
        if self.name is None or self.name == acl.name:
            return True
        if self.pattern_type is not PatternType.MATCH:
            return False
        if acl.pattern_type is PatternType.LITERAL:
            return acl.name == WILDCARD
        return self.name.startswith(acl.name)
