"""Authorization as a port: the principal of a request, and the authorizer that grants rights."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol


class Operation(IntEnum):
    """Kafka's ACL operations (KIP-11), with their wire codes."""

    UNKNOWN = 0
    ANY = 1
    """In filters: every operation."""
    ALL = 2
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
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class ResourceType(IntEnum):
    """Kafka's ACL resource types, with their wire codes."""

    UNKNOWN = 0
    ANY = 1
    """In filters: every resource type."""
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


@dataclass(frozen=True, slots=True)
class Principal:
    """The identity behind a connection (Kafka's `KafkaPrincipal`), and its listener's name."""

    kind: str = "User"
    name: str = "ANONYMOUS"
    listener: str = "PLAINTEXT"


class Requester(Protocol):
    """Who asks for a right: the session of a connection."""

    @property
    def principal(self) -> Principal:
        """The authenticated principal; `User:ANONYMOUS` on listeners without authentication."""
        ...

    @property
    def host(self) -> str:
        """IP address of the client: ACLs may name hosts."""
        ...

    @property
    def asks_quietly(self) -> bool:
        """True while a denial is no refused attempt: a list leaves out what may not be seen, or a
        reply names the operations that are allowed (Kafka's `logIfDenied`)."""
        ...


class Authorizer(Protocol):
    """Decides one operation on one resource (KIP-11). Must not block, must not raise."""

    @property
    def generation(self) -> int:
        """A number that changes with the ACLs: sessions remember decisions of one generation."""
        ...

    def authorize(
        self, requester: Requester, operation: Operation, resource: ResourceType, name: str
    ) -> bool:
        """True when `requester` may do `operation` on the resource `name`."""
        ...

    def authorize_any(
        self, requester: Requester, operation: Operation, resource: ResourceType
    ) -> bool:
        """True when `requester` may do `operation` on some resource of this type (KIP-679)."""
        ...


class AllowAll:
    """The authorizer of a cluster without ACLs: every operation is allowed."""

    generation = 0

    def authorize(
        self, requester: Requester, operation: Operation, resource: ResourceType, name: str
    ) -> bool:
        """Always True."""
        return True

    def authorize_any(
        self, requester: Requester, operation: Operation, resource: ResourceType
    ) -> bool:
        """Always True."""
        return True
