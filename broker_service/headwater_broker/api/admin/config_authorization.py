"""Rights to read and change the configs of a resource."""

from __future__ import annotations

from headwater.errors import ErrorCode
from headwater.ports.authorizer import Operation
from headwater_broker.api.admin.forwarding import may_on_cluster, may_on_topic
from headwater_broker.api.context import RequestContext

TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
BROKER_LOGGER_RESOURCE = 8

Refusal = tuple[ErrorCode, str]


def refusal(ctx: RequestContext, kind: int, name: str, operation: Operation) -> Refusal | None:
    """None when the principal has the right; else error code and message."""
    if kind == TOPIC_RESOURCE:
        if may_on_topic(ctx, operation, name):
            return None
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"no {operation.name} on topic {name}"
    if kind in (BROKER_RESOURCE, BROKER_LOGGER_RESOURCE):
        if may_on_cluster(ctx, operation):
            return None
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED, f"no {operation.name} on the cluster"
    return ErrorCode.INVALID_REQUEST, f"resource type {kind} has no configs here"
