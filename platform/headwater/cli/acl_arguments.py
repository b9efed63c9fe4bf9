"""Arguments of `headwater acls`, as of kafka-acls.sh, as ACLs and filters. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product

from headwater.errors import UsageError
from headwater.ports.authorizer import Operation, ResourceType
from headwater.security.acl import (
    CLUSTER_NAME,
    WILDCARD,
    AclBinding,
    AclFilter,
    PatternType,
    PermissionType,
)

PATTERN_TYPES = {p.name.lower(): p for p in PatternType if p is not PatternType.UNKNOWN}
NEW_PATTERN_TYPES = ("literal", "prefixed")
OPERATIONS = {
    operation.name.replace("_", "").lower(): operation
    for operation in Operation
    if operation > Operation.ANY
}
"""The operations by their names in lower case without underscores: `describeconfigs`."""
COMMON = {Operation.ALL, Operation.DESCRIBE}
OPERATIONS_OF = {
    ResourceType.TOPIC: COMMON
    | {
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    },
    ResourceType.GROUP: COMMON
    | {
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    },
    ResourceType.CLUSTER: COMMON
    | {
        Operation.CREATE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
        Operation.ALTER,
    },
    ResourceType.TRANSACTIONAL_ID: COMMON | {Operation.WRITE, Operation.TWO_PHASE_COMMIT},
    ResourceType.DELEGATION_TOKEN: COMMON,
    ResourceType.USER: {Operation.ALL, Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS},
}
"""Operations that a resource type has (Kafka's `AclEntry.supportedOperations`)."""


@dataclass(frozen=True, slots=True)
class Resources:
    """The resources that a command names, all with one pattern type."""

    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    transactional_ids: tuple[str, ...] = ()
    delegation_tokens: tuple[str, ...] = ()
    user_principals: tuple[str, ...] = ()
    cluster: bool = False
    pattern_type: PatternType = PatternType.LITERAL

    def named(self) -> Iterator[tuple[ResourceType, str]]:
        """(type, name) of each."""
        for kind, names in (
            (ResourceType.TOPIC, self.topics),
            (ResourceType.GROUP, self.groups),
            (ResourceType.TRANSACTIONAL_ID, self.transactional_ids),
            (ResourceType.DELEGATION_TOKEN, self.delegation_tokens),
            (ResourceType.USER, self.user_principals),
            (ResourceType.CLUSTER, (CLUSTER_NAME,) if self.cluster else ()),
        ):
            for name in names:
                yield kind, name


@dataclass(frozen=True, slots=True)
class Entries:
    """Who is allowed or denied what."""

    allowed: tuple[str, ...] = ()
    denied: tuple[str, ...] = ()
    allow_hosts: tuple[str, ...] = ()
    deny_hosts: tuple[str, ...] = ()
    operations: tuple[str, ...] = ()

    def pairs(self) -> list[tuple[PermissionType, str, str]]:
        """(permission, principal, host) of each. Raises UsageError without a principal."""
        for hosts, principals, kind in (
            (self.allow_hosts, self.allowed, "allow"),
            (self.deny_hosts, self.denied, "deny"),
        ):
            if hosts and not principals:
                raise UsageError(f"--{kind}-host goes with --{kind}-principal: name one")
        rows = [
            *product(
                [PermissionType.ALLOW], map(principal, self.allowed), self.allow_hosts or WILDCARD
            ),
            *product(
                [PermissionType.DENY], map(principal, self.denied), self.deny_hosts or WILDCARD
            ),
        ]
        if not rows:
            raise UsageError("whose ACL? Give --allow-principal or --deny-principal, as User:alice")
        return rows


def bindings(resources: Resources, entries: Entries) -> list[AclBinding]:
    """An ACL for each resource, principal, host and operation. Raises UsageError."""
    named = list(resources.named())
    if not named:
        raise UsageError(
            "which resource? Give --topic, --group, --cluster, --transactional-id, "
            "--delegation-token or --user-principal"
        )
    wanted = [operation(text) for text in entries.operations] or [Operation.ALL]
    found = []
    for (kind, name), action, pair in product(named, wanted, entries.pairs()):
        _check(kind, action)
        permission, who, host = pair
        found.append(
            AclBinding(kind, name, _pattern(kind, resources), who, host, action, permission)
        )
    return list(dict.fromkeys(found))


def producer_bindings(
    resources: Resources, entries: Entries, *, idempotent: bool
) -> list[AclBinding]:
    """What a producer needs: Write, Describe, Create of its topics; its transactional ids."""
    _check_role("producer", entries, {"--topic": resources.topics})
    found = _role(ResourceType.TOPIC, resources.topics, resources, entries, "write describe create")
    found += _role(
        ResourceType.TRANSACTIONAL_ID,
        resources.transactional_ids,
        resources,
        entries,
        "write describe",
    )
    if idempotent:
        cluster = (CLUSTER_NAME,)
        found += _role(ResourceType.CLUSTER, cluster, resources, entries, "idempotentwrite")
    return found


def consumer_bindings(resources: Resources, entries: Entries) -> list[AclBinding]:
    """What a consumer needs: Read and Describe of its topics, Read of its group."""
    _check_role("consumer", entries, {"--topic": resources.topics, "--group": resources.groups})
    found = _role(ResourceType.TOPIC, resources.topics, resources, entries, "read describe")
    return found + _role(ResourceType.GROUP, resources.groups, resources, entries, "read")


def filters(resources: Resources, principals: Iterable[str] = ()) -> list[AclFilter]:
    """Filters for the named resources, or for all, and for these principals, or for all."""
    named: list[tuple[ResourceType, str | None]] = [*resources.named()]
    whose: list[str | None] = [*map(principal, principals)]
    return [
        AclFilter(kind, name, resources.pattern_type, who)
        for (kind, name), who in product(named or [(ResourceType.ANY, None)], whose or [None])
    ]


def operation(text: str) -> Operation:
    """The operation by Kafka's name: `Read`, `DescribeConfigs`, `describe_configs`."""
    found = OPERATIONS.get(text.replace("_", "").replace("-", "").lower())
    if found is None:
        names = ", ".join(operation_name(known) for known in OPERATIONS.values())
        raise UsageError(f"--operation {text!r}: use one of {names}")
    return found


def operation_name(value: Operation) -> str:
    """`DescribeConfigs`, as kafka-acls.sh takes it."""
    return "".join(word.capitalize() for word in value.name.split("_"))


def principal(text: str) -> str:
    """A principal as Kafka writes it. Raises UsageError unless it is `User:name`."""
    kind, colon, name = text.partition(":")
    if not colon or not kind or not name:
        raise UsageError(f"principal {text!r}: write it as User:alice")
    return text


def _role(
    kind: ResourceType,
    names: Iterable[str],
    resources: Resources,
    entries: Entries,
    operations: str,
) -> list[AclBinding]:
    return [
        AclBinding(kind, name, _pattern(kind, resources), who, host, operation(action), permission)
        for name, action, (permission, who, host) in product(
            names, operations.split(), entries.pairs()
        )
    ]


def _pattern(kind: ResourceType, resources: Resources) -> PatternType:
    """The cluster has one name: a prefix means nothing there."""
    is_cluster = kind is ResourceType.CLUSTER
    return PatternType.LITERAL if is_cluster else resources.pattern_type


def _check(kind: ResourceType, action: Operation) -> None:
    possible = OPERATIONS_OF[kind]
    if action not in possible:
        names = ", ".join(sorted(operation_name(known) for known in possible))
        raise UsageError(
            f"--operation {operation_name(action)} does not exist for {_kind(kind)}: use {names}"
        )


def _kind(kind: ResourceType) -> str:
    return kind.name.lower().replace("_", " ")


def _check_role(role: str, entries: Entries, needed: dict[str, tuple[str, ...]]) -> None:
    if entries.operations:
        raise UsageError(f"--{role} means a set of operations: leave --operation out")
    if entries.denied or not entries.allowed:
        raise UsageError(f"--{role} goes with --allow-principal only")
    missing = [option for option, names in needed.items() if not names]
    if missing:
        raise UsageError(f"--{role} needs {' and '.join(missing)}")
