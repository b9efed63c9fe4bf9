"""WriteShareGroupState: a leader writes what changed in share partitions (KIP-932)."""

from __future__ import annotations

from headwater.errors import ErrorCode, KafkaError
from headwater.wire.apis.k85_write_share_group_state import (
    PartitionData,
    PartitionResult,
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
    WriteStateResult,
)
from headwater_broker.api.context import RequestContext
from headwater_broker.api.registry import handles
from headwater_broker.api.share_state_requests import each_share_partition
from headwater_broker.replica.share.ports import SharePartitionKey, ShareState, StateBatch


@handles(WriteShareGroupStateRequest, WriteShareGroupStateResponse)
async def write_share_group_state(
    ctx: RequestContext, request: WriteShareGroupStateRequest
) -> WriteShareGroupStateResponse:
    """One code per share partition; needs CLUSTER_ACTION."""
    states = ctx.broker.share_states

    async def write(key: SharePartitionKey, row: PartitionData) -> PartitionResult:
        batches = tuple(
            StateBatch(b.first_offset, b.last_offset, b.delivery_state, b.delivery_count)
            for b in row.state_batches
        )
        state = ShareState(
            row.state_epoch,
            row.leader_epoch,
            row.start_offset,
            batches,
            row.delivery_complete_count,
            row.holds,
        )
        await states.write(key, state)
        return PartitionResult(partition=key.partition, error_code=ErrorCode.NONE)

    found = await each_share_partition(ctx, request.group_id, request.topics, write, _refused)
    return WriteShareGroupStateResponse(
        results=tuple(
            WriteStateResult(topic_id=topic_id, partitions=rows) for topic_id, rows in found
        )
    )


def _refused(partition: int, error: KafkaError) -> PartitionResult:
    return PartitionResult(
        partition=partition,
        error_code=error.code,
        error_message=error.detail,
    )
