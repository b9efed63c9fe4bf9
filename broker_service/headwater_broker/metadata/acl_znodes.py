"""ZooKeeper paths and JSON of ACLs, in Kafka's layout (KIP-290).

    /kafka-acl/Topic/T                           {"version":1,"acls":[{"principal":"User:a", ...}]}
    /kafka-acl-extended/prefixed/Group/G         the same, for prefixed names
    /kafka-acl-changes/acl_changes_0000000001    TOPIC:T
    /kafka-acl-extended-changes/acl_changes_...  {"version":1,"resourceType":"TOPIC", ...}

A name that ZooKeeper does not take (`a/b`, `.`) is percent-encoded; every other one but those with
a percent sign stands as it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import unquote

from headwater.ports.authorizer import Operation, ResourceType
from headwater.security.acl import AclBinding, PatternType, PermissionType
from headwater_broker.metadata.znode_json import GARBLED, dump
from headwater_broker.metadata.znodes import ZnodeError, load
from headwater_broker.security.audit_entry import pascal
from headwater_broker.security.standard_authorizer import ResourcePattern

LITERAL_ACLS = "/kafka-acl"
EXTENDED_ACLS = "/kafka-acl-extended"
PREFIXED_ACLS = f"{EXTENDED_ACLS}/prefixed"
LITERAL_CHANGES = "/kafka-acl-changes"
EXTENDED_CHANGES = "/kafka-acl-extended-changes"
CHANGE_PREFIX = "acl_changes_"
ROOTS = {LITERAL_ACLS: PatternType.LITERAL, PREFIXED_ACLS: PatternType.PREFIXED}
CHANGES = (LITERAL_CHANGES, EXTENDED_CHANGES)
TYPES = {pascal(t.name): t for t in ResourceType if t > ResourceType.ANY}
OPERATIONS = {pascal(o.name): o for o in Operation if o > Operation.ANY}
PERMISSIONS = {"Allow": PermissionType.ALLOW, "Deny": PermissionType.DENY}

PERSISTENT_PATHS = (
    LITERAL_ACLS,
    EXTENDED_ACLS,
    PREFIXED_ACLS,
    *(f"{root}/{name}" for root in ROOTS for name in TYPES),
    *CHANGES,
)
"""Created by the first broker with an authorizer, as by Kafka's."""


def quoted(name: str) -> str:
    """A resource's name as the name of a node.

    A `%` stays as Kafka writes it, unless the node would then be read as another name.
    """
    escaped = _escaped(name)
    is_legal = all(c == "%" or _is_plain(c) for c in name) and name not in (".", "..")
    return name if is_legal and _escaped(unquote(name)) != name else escaped


def unquoted(node: str) -> str:
    """The inverse of `quoted`."""
    name = unquote(node)
    return name if _escaped(name) == node else node


def _escaped(name: str) -> str:
    if name in (".", ".."):
        return "%2E" * len(name)
    return "".join(c if _is_plain(c) else _percent(c) for c in name)


def _is_plain(char: str) -> bool:
    code = ord(char)
    return not (
        char in "/%"
        or code < 0x20
        or 0x7F <= code <= 0x9F
        or 0xD800 <= code <= 0xF8FF
        or 0xFFF0 <= code <= 0xFFFF
    )


def _percent(char: str) -> str:
    return "".join(f"%{byte:02X}" for byte in char.encode())


def type_path(root: str, kind: ResourceType) -> str:
    """`/kafka-acl/Topic`."""
    return f"{root}/{pascal(kind.name)}"


def acl_path(pattern: ResourcePattern) -> str:
    """`/kafka-acl/Topic/T`."""
    root = LITERAL_ACLS if pattern.pattern_type is PatternType.LITERAL else PREFIXED_ACLS
    return f"{type_path(root, pattern.resource_type)}/{quoted(pattern.name)}"


def encode_acls(acls: Iterable[AclBinding]) -> bytes:
    """The data of a resource's node."""
    rows = [
        {
            "principal": acl.principal,
            "permissionType": pascal(acl.permission.name),
            "operation": pascal(acl.operation.name),
            "host": acl.host,
        }
        for acl in sorted(acls)
    ]
    return dump({"version": 1, "acls": rows})


def decode_acls(pattern: ResourcePattern, data: bytes) -> tuple[AclBinding, ...]:
    """The ACLs in a resource's node. Raises ZnodeError."""
    path = acl_path(pattern)
    row = load(path, data)
    try:
        return tuple(
            AclBinding(
                pattern.resource_type,
                pattern.name,
                pattern.pattern_type,
                str(acl["principal"]),
                str(acl["host"]),
                OPERATIONS[acl["operation"]],
                PERMISSIONS[acl["permissionType"]],
            )
            for acl in row.get("acls", ())
        )
    except GARBLED as e:
        raise ZnodeError(f"{path}: not a list of ACLs: {e!r}") from e


def change_of(pattern: ResourcePattern) -> tuple[str, bytes]:
    """(prefix of the sequential node, data) that tells brokers to read a resource again."""
    kind = pattern.resource_type.name
    if pattern.pattern_type is PatternType.LITERAL:
        return f"{LITERAL_CHANGES}/{CHANGE_PREFIX}", f"{kind}:{pattern.name}".encode()
    row = {"version": 1, "resourceType": kind, "name": pattern.name, "patternType": "PREFIXED"}
    return f"{EXTENDED_CHANGES}/{CHANGE_PREFIX}", dump(row)


def decode_change(folder: str, data: bytes) -> ResourcePattern:
    """The resource that a change node names. Raises ZnodeError."""
    try:
        if folder == LITERAL_CHANGES:
            kind, _, name = data.decode().partition(":")
            if not name:
                raise ValueError("no name")
            return ResourcePattern(ResourceType[kind.upper()], name, PatternType.LITERAL)
        row = load(folder, data)
        pattern_type = PatternType[row["patternType"].upper()]
        kind = row["resourceType"].replace("_", "").upper()
        found = {t.name.replace("_", ""): t for t in TYPES.values()}[kind]
        return ResourcePattern(found, str(row["name"]), pattern_type)
    except (*GARBLED, UnicodeDecodeError) as e:
        raise ZnodeError(f"{folder}: not a change of ACLs: {data[:80]!r}") from e


def denial(pattern: ResourcePattern) -> AclBinding:
    """The substitute for a node that is not valid: a lost DENY must not open a resource."""
    return AclBinding(
        pattern.resource_type,
        pattern.name,
        pattern.pattern_type,
        "User:*",
        "*",
        Operation.ALL,
        PermissionType.DENY,
    )
