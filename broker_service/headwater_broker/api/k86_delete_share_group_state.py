"""DeleteShareGroupState: the states of share partitions are forgotten (KIP-932)."""

from __future__ import annotations

from headwater.errors import ErrorCode, KafkaError
from headwater.wire.apis.k86_delete_share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
    DeleteStateResult,
    PartitionData,
    PartitionResult,
)
from headwater_broker.api.context import RequestContext
from headwater_broker.api.registry import handles
from headwater_broker.api.share_state_requests import each_share_partition
from headwater_broker.replica.share.ports import SharePartitionKey


@handles(DeleteShareGroupStateRequest, DeleteShareGroupStateResponse)
async def delete_share_group_state(
    ctx: RequestContext, request: DeleteShareGroupStateRequest
) -> DeleteShareGroupStateResponse:
    """One code per share partition, also where there was no state; needs CLUSTER_ACTION."""
    states = ctx.broker.share_states

    async def delete(key: SharePartitionKey, _row: PartitionData) -> PartitionResult:
        await states.delete(key)
        return PartitionResult(partition=key.partition, error_code=ErrorCode.NONE)

    found = await each_share_partition(ctx, request.group_id, request.topics, delete, _refused)
    return DeleteShareGroupStateResponse(
        results=tuple(
            DeleteStateResult(topic_id=topic_id, partitions=rows) for topic_id, rows in found
        )
    )


def _refused(partition: int, error: KafkaError) -> PartitionResult:
    return PartitionResult(
        partition=partition,
        error_code=error.code,
        error_message=error.detail,
    )
