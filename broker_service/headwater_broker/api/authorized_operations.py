"""Authorized operations in replies (KIP-430): `AclEntry.supportedOperations` of each resource."""

from __future__ import annotations

from collections.abc import Mapping

from headwater.ports.authorizer import Operation, ResourceType
from headwater.security.acl import CLUSTER_NAME
from headwater_broker.api.context import RequestContext

NOT_REQUESTED = -(2**31)
"""authorized_operations when the request does not ask for them."""
SUPPORTED: Mapping[ResourceType, tuple[Operation, ...]] = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
}
"""Operations that a reply may name, by resource type."""


def authorized_operations(ctx: RequestContext, resource: ResourceType, name: str) -> int:
    """The operations that the principal may do on a resource, as the protocol's bit field."""
    with ctx.session.quietly():
        return sum(
            1 << operation
            for operation in SUPPORTED[resource]
            if ctx.allowed(operation, resource, name)
        )


def cluster_operations(ctx: RequestContext) -> int:
    """The operations on the cluster; 0 without DESCRIBE on it."""
    if not ctx.allowed(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return 0
    return authorized_operations(ctx, ResourceType.CLUSTER, CLUSTER_NAME)
