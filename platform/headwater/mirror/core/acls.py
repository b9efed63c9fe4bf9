"""The ACLs of the source's topics that the target gets, and when. Pure.

Until promotion only rights to read: a writer in the target would come between the mirrored records.
An ACL of a pattern is given as one of each mirrored topic that it applies to, so that it grants
nothing beyond those.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from headwater.ports.authorizer import Operation, ResourceType
from headwater.security.acl import WILDCARD, AclBinding, PatternType, PermissionType

READING = (Operation.READ, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS)


def mirrored_acls(
    source: Iterable[AclBinding], topics: Sequence[str], *, is_promoted: bool
) -> set[AclBinding]:
    """The ACLs that the target should have of these topics."""
    found: set[AclBinding] = set()
    for acl in source:
        if acl.resource_type is not ResourceType.TOPIC:
            continue
        for topic in topics:
            if _applies(acl, topic):
                own = replace(acl, name=topic, pattern_type=PatternType.LITERAL)
                found.update([own] if is_promoted else _withheld(own))
    return found


def _applies(acl: AclBinding, topic: str) -> bool:
    if acl.pattern_type is PatternType.LITERAL:
        return acl.name in (topic, WILDCARD)
    return acl.pattern_type is PatternType.PREFIXED and topic.startswith(acl.name)


def _withheld(acl: AclBinding) -> list[AclBinding]:
    """What of an ACL is given before promotion."""
    if acl.permission is not PermissionType.ALLOW or acl.operation in READING:
        return [acl]
    if acl.operation is Operation.ALL:
        return [replace(acl, operation=operation) for operation in READING]
    return []


def acl_row(acl: AclBinding) -> list[Any]:
    """An ACL as JSON."""
    return [
        int(acl.resource_type), acl.name, int(acl.pattern_type), acl.principal, acl.host,
        int(acl.operation), int(acl.permission),
    ]  # fmt: skip


def acl_of(row: Sequence[Any]) -> AclBinding:
    """The ACL of `acl_row`. Raises ValueError."""
    kind, name, pattern, principal, host, operation, permission = row
    return AclBinding(
        ResourceType(kind), name, PatternType(pattern), principal, host, Operation(operation),
        PermissionType(permission),
    )  # fmt: skip
