"""ReadShareGroupState: a leader reads the states of share partitions (KIP-932)."""

from __future__ import annotations

from headwater.errors import ErrorCode, KafkaError
from headwater.wire.apis.k84_read_share_group_state import (
    PartitionData,
    PartitionResult,
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    ReadStateResult,
    StateBatch,
)
from headwater_broker.api.context import RequestContext
from headwater_broker.api.registry import handles
from headwater_broker.api.share_state_requests import each_share_partition
from headwater_broker.replica.share.ports import UNKNOWN_START_OFFSET, SharePartitionKey


@handles(ReadShareGroupStateRequest, ReadShareGroupStateResponse)
async def read_share_group_state(
    ctx: RequestContext, request: ReadShareGroupStateRequest
) -> ReadShareGroupStateResponse:
    """Leaders of earlier epochs are fenced; needs CLUSTER_ACTION."""
    states = ctx.broker.share_states

    async def read(key: SharePartitionKey, row: PartitionData) -> PartitionResult:
        state = await states.read(key, row.leader_epoch)
        return PartitionResult(
            partition=key.partition,
            error_code=ErrorCode.NONE,
            state_epoch=state.state_epoch,
            start_offset=state.start_offset,
            state_batches=tuple(
                StateBatch(
                    first_offset=b.first_offset,
                    last_offset=b.last_offset,
                    delivery_state=b.delivery_state,
                    delivery_count=b.delivery_count,
                )
                for b in state.batches
            ),
            holds=state.holds,
        )

    found = await each_share_partition(ctx, request.group_id, request.topics, read, _refused)
    return ReadShareGroupStateResponse(
        results=tuple(
            ReadStateResult(topic_id=topic_id, partitions=rows) for topic_id, rows in found
        )
    )


def _refused(partition: int, error: KafkaError) -> PartitionResult:
    return PartitionResult(
        partition=partition,
        error_code=error.code,
        error_message=error.detail,
        state_epoch=0,
        start_offset=UNKNOWN_START_OFFSET,
        state_batches=(),
    )
