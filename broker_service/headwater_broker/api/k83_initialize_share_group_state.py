"""InitializeShareGroupState: the states of share partitions begin (KIP-932)."""

from __future__ import annotations

from headwater.errors import ErrorCode, KafkaError
from headwater.wire.apis.k83_initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
    InitializeStateResult,
    PartitionData,
    PartitionResult,
)
from headwater_broker.api.context import RequestContext
from headwater_broker.api.registry import handles
from headwater_broker.api.share_state_requests import each_share_partition
from headwater_broker.replica.share.ports import SharePartitionKey


@handles(InitializeShareGroupStateRequest, InitializeShareGroupStateResponse)
async def initialize_share_group_state(
    ctx: RequestContext, request: InitializeShareGroupStateRequest
) -> InitializeShareGroupStateResponse:
    """One code per share partition; needs CLUSTER_ACTION."""
    states = ctx.broker.share_states

    async def initialize(key: SharePartitionKey, row: PartitionData) -> PartitionResult:
        await states.initialize(key, row.state_epoch, row.start_offset)
        return PartitionResult(partition=key.partition, error_code=ErrorCode.NONE)

    found = await each_share_partition(ctx, request.group_id, request.topics, initialize, _refused)
    return InitializeShareGroupStateResponse(
        results=tuple(
            InitializeStateResult(topic_id=topic_id, partitions=rows) for topic_id, rows in found
        )
    )


def _refused(partition: int, error: KafkaError) -> PartitionResult:
    return PartitionResult(
        partition=partition,
        error_code=error.code,
        error_message=error.detail,
    )
