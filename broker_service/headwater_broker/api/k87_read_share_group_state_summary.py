"""ReadShareGroupStateSummary: the states of share partitions without their batches (KIP-932)."""

from __future__ import annotations

from headwater.errors import ErrorCode, KafkaError
from headwater.wire.apis.k87_read_share_group_state_summary import (
    PartitionData,
    PartitionResult,
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
    ReadStateSummaryResult,
)
from headwater_broker.api.context import RequestContext
from headwater_broker.api.registry import handles
from headwater_broker.api.share_state_requests import each_share_partition
from headwater_broker.replica.share.ports import UNKNOWN_START_OFFSET, SharePartitionKey


@handles(ReadShareGroupStateSummaryRequest, ReadShareGroupStateSummaryResponse)
async def read_share_group_state_summary(
    ctx: RequestContext, request: ReadShareGroupStateSummaryRequest
) -> ReadShareGroupStateSummaryResponse:
    """It fences nobody; needs CLUSTER_ACTION."""
    states = ctx.broker.share_states

    async def read(key: SharePartitionKey, _row: PartitionData) -> PartitionResult:
        summary = await states.read_summary(key)
        return PartitionResult(
            partition=key.partition,
            error_code=ErrorCode.NONE,
            state_epoch=summary.state_epoch,
            leader_epoch=summary.leader_epoch,
            start_offset=summary.start_offset,
            delivery_complete_count=summary.delivery_complete_count,
        )

    found = await each_share_partition(ctx, request.group_id, request.topics, read, _refused)
    return ReadShareGroupStateSummaryResponse(
        results=tuple(
            ReadStateSummaryResult(topic_id=topic_id, partitions=rows) for topic_id, rows in found
        )
    )


def _refused(partition: int, error: KafkaError) -> PartitionResult:
    return PartitionResult(
        partition=partition,
        error_code=error.code,
        error_message=error.detail,
        state_epoch=0,
        leader_epoch=0,
        start_offset=UNKNOWN_START_OFFSET,
    )
