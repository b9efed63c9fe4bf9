"""DescribeCluster: brokers and controller, from this broker's metadata (KIP-700).

Version 1 has an endpoint type (KIP-919). Only brokers have endpoints: controllers have no listener
of their own.
"""

from __future__ import annotations

from headwater.errors import ErrorCode
from headwater.wire.apis.k60_describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from headwater_broker.api.authorized_operations import NOT_REQUESTED, cluster_operations
from headwater_broker.api.context import RequestContext
from headwater_broker.api.listener_endpoints import endpoints
from headwater_broker.api.registry import handles

BROKER_ENDPOINTS = 1
CONTROLLER_ENDPOINTS = 2


@handles(DescribeClusterRequest, DescribeClusterResponse)
def describe_cluster(
    ctx: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    """Live brokers only. There are no fenced ones: a broker without a registration is unknown."""
    services = ctx.broker
    if request.endpoint_type != BROKER_ENDPOINTS:
        if request.endpoint_type == CONTROLLER_ENDPOINTS:
            code = ErrorCode.MISMATCHED_ENDPOINT_TYPE
            text = "controllers have no endpoints of their own: request those of brokers"
        else:
            code = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
            text = f"no endpoint type {request.endpoint_type}"
        return DescribeClusterResponse(
            error_code=code,
            error_message=text,
            endpoint_type=request.endpoint_type,
            cluster_id=services.cluster_id,
        )
    allowed = NOT_REQUESTED
    if request.include_cluster_authorized_operations:
        allowed = cluster_operations(ctx)
    return DescribeClusterResponse(
        error_code=ErrorCode.NONE,
        cluster_id=services.cluster_id,
        controller_id=services.view.controller_id,
        brokers=tuple(
            DescribeClusterBroker(broker_id=e.node_id, host=e.host, port=e.port, rack=e.rack)
            for e in endpoints(services, ctx.listener, services.view.brokers)
        ),
        cluster_authorized_operations=allowed,
    )
