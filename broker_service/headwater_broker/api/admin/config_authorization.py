"""Rights to read and change the configs of a resource."""

from __future__ import annotations

from headwater.errors import ErrorCode
from headwater.ports.authorizer import Operation, ResourceType
from headwater_broker.api.admin.forwarding import may_on_cluster, may_on_topic
from headwater_broker.api.context import RequestContext

TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
BROKER_LOGGER_RESOURCE = 8
CLIENT_METRICS_RESOURCE = 16
GROUP_RESOURCE = 32

Refusal = tuple[ErrorCode, str]


def refusal(ctx: RequestContext, kind: int, name: str, operation: Operation) -> Refusal | None:
    """None when the principal has the right; else error code and message. Rights come first."""
    if kind == TOPIC_RESOURCE:
        if may_on_topic(ctx, operation, name):
            return None
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"no {operation.name} on topic {name}"
    if kind == GROUP_RESOURCE:
        if ctx.allowed(operation, ResourceType.GROUP, name):
            return None if name else (ErrorCode.INVALID_REQUEST, "the group id is empty")
        return ErrorCode.GROUP_AUTHORIZATION_FAILED, f"no {operation.name} on group {name}"
    if kind in (BROKER_RESOURCE, BROKER_LOGGER_RESOURCE, CLIENT_METRICS_RESOURCE):
        if may_on_cluster(ctx, operation):
            return _unserved(kind) if kind == CLIENT_METRICS_RESOURCE else None
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED, f"no {operation.name} on the cluster"
    return _unserved(kind)


def _unserved(kind: int) -> Refusal:
    return ErrorCode.INVALID_REQUEST, f"resource type {kind} has no configs here"
