"""AlterPartitionReassignments: reassigns replicas, or cancels a reassignment (KIP-455)."""

from __future__ import annotations

from headwater.errors import KafkaError
from headwater.ports.authorizer import Operation
from headwater.wire.apis.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from headwater_broker.api.admin.forwarding import forward_in_time, require_on_cluster
from headwater_broker.api.context import RequestContext
from headwater_broker.api.registry import handles


@handles(AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse)
async def alter_partition_reassignments(
    ctx: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Answered when the reassignments have begun; ListPartitionReassignments has their progress."""
    try:
        require_on_cluster(ctx, Operation.ALTER)
        return await forward_in_time(
            ctx, request, AlterPartitionReassignmentsResponse, request.timeout_ms
        )
    except KafkaError as e:
        return _failed(request, e)


def _failed(
    request: AlterPartitionReassignmentsRequest, error: KafkaError
) -> AlterPartitionReassignmentsResponse:
    """As in Kafka each requested partition has the error too."""
    return AlterPartitionReassignmentsResponse(
        error_code=error.code,
        error_message=error.detail,
        responses=tuple(
            ReassignableTopicResponse(
                name=topic.name,
                partitions=tuple(
                    ReassignablePartitionResponse(
                        partition_index=p.partition_index,
                        error_code=error.code,
                        error_message=error.detail,
                    )
                    for p in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )
