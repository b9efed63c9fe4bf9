"""AlterPartitionReassignments: move replicas, or cancel a move (KIP-455)."""

from __future__ import annotations

from headwater.errors import KafkaError
from headwater.ports.authorizer import Operation
from headwater.wire.apis.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from headwater_broker.api.forwarding import forward, require_on_cluster
from headwater_broker.api.registry import handles
from headwater_broker.api.services import RequestContext


@handles(AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse)
async def alter_partition_reassignments(
    ctx: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Answered when the moves have begun; ListPartitionReassignments tells how they go."""
    try:
        require_on_cluster(ctx, Operation.ALTER)
        return await forward(ctx, request, AlterPartitionReassignmentsResponse, request.timeout_ms)
    except KafkaError as e:
        return AlterPartitionReassignmentsResponse(error_code=e.code, error_message=e.detail)
