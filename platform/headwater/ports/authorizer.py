"""Who may do what: every handler asks this port, so that security later touches no handler."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol


class Operation(IntEnum):
    """Kafka's ACL operations (KIP-11), with their wire codes."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


class ResourceType(IntEnum):
    """Kafka's ACL resource types, with their wire codes."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


@dataclass(frozen=True, slots=True)
class Principal:
    """Who speaks on a connection, and by which listener it came in."""

    kind: str = "User"
    name: str = "ANONYMOUS"
    listener: str = "PLAINTEXT"


class Authorizer(Protocol):
    """Decides one operation on one resource. Must not block, must not raise."""

    def authorize(
        self, principal: Principal, operation: Operation, resource: ResourceType, name: str
    ) -> bool:
        """True when allowed."""
        ...


class AllowAll:
    """The authorizer until security lands: everything is allowed."""

    def authorize(
        self, principal: Principal, operation: Operation, resource: ResourceType, name: str
    ) -> bool:
        """Always True."""
        return True
