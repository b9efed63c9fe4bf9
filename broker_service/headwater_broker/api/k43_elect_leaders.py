"""ElectLeaders: preferred (type 0) and unclean (type 1) leader elections on request (KIP-460)."""

from __future__ import annotations

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Operation
from headwater.wire.apis.k43_elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from headwater_broker.api.admin.forwarding import forward_in_time, require_on_cluster
from headwater_broker.api.context import RequestContext
from headwater_broker.api.registry import handles


@handles(ElectLeadersRequest, ElectLeadersResponse)
async def elect_leaders(ctx: RequestContext, request: ElectLeadersRequest) -> ElectLeadersResponse:
    """Answered when the brokers know the new leaders."""
    try:
        require_on_cluster(ctx, Operation.ALTER)
        return await forward_in_time(ctx, request, ElectLeadersResponse, request.timeout_ms)
    except KafkaError as e:
        return _failed(ctx, request, e)


def _failed(
    ctx: RequestContext, request: ElectLeadersRequest, error: KafkaError
) -> ElectLeadersResponse:
    """As in Kafka each requested partition has the error too: version 0 has no top-level code."""
    return ElectLeadersResponse(
        error_code=error.code if ctx.api_version >= 1 else ErrorCode.NONE,
        replica_election_results=tuple(
            ReplicaElectionResult(
                topic=row.topic,
                partition_result=tuple(
                    PartitionResult(
                        partition_id=index, error_code=error.code, error_message=error.detail
                    )
                    for index in row.partitions
                ),
            )
            for row in request.topic_partitions or ()
        ),
    )
