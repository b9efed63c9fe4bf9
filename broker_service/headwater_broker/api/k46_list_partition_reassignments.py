"""ListPartitionReassignments: reassignments in progress, from the controller (KIP-455)."""

from __future__ import annotations

from headwater.errors import KafkaError
from headwater.ports.authorizer import Operation
from headwater.wire.apis.k46_list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from headwater_broker.api.admin.forwarding import forward, require_on_cluster
from headwater_broker.api.context import RequestContext
from headwater_broker.api.registry import handles


@handles(ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse)
async def list_partition_reassignments(
    ctx: RequestContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """Null topics mean all."""
    try:
        require_on_cluster(ctx, Operation.DESCRIBE)
        return await forward(ctx, request, ListPartitionReassignmentsResponse, request.timeout_ms)
    except KafkaError as e:
        return ListPartitionReassignmentsResponse(error_code=e.code, error_message=e.detail)
