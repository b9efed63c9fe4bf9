"""OffsetDelete: deletes committed offsets of topics that no member subscribes to (KIP-496).

Topics that do not exist are refused: their offsets are deleted with the topic.
"""

from __future__ import annotations

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Operation, ResourceType
from headwater.wire.apis.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from headwater_broker.api.context import RequestContext
from headwater_broker.api.group_authorization import require_group
from headwater_broker.api.registry import handles


@handles(OffsetDeleteRequest, OffsetDeleteResponse)
async def offset_delete(ctx: RequestContext, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    """One error code per partition, or one for the group."""
    denied = {
        t.name
        for t in request.topics
        if not ctx.allowed(Operation.READ, ResourceType.TOPIC, t.name)
    }
    wanted = tuple(
        (t.name, p.partition_index)
        for t in request.topics
        if t.name not in denied
        for p in t.partitions
        if ctx.broker.view.partition(t.name, p.partition_index) is not None
    )
    try:
        require_group(ctx, Operation.DELETE, request.group_id)
        codes = await ctx.broker.groups.delete_offsets(request.group_id, wanted)
    except KafkaError as error:
        return OffsetDeleteResponse(error_code=error.code)
    refusal = dict.fromkeys(denied, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return OffsetDeleteResponse(
        topics=tuple(
            OffsetDeleteResponseTopic(
                name=t.name,
                partitions=tuple(
                    OffsetDeleteResponsePartition(
                        partition_index=p.partition_index,
                        error_code=codes.get(
                            (t.name, p.partition_index), refusal.get(t.name, unknown)
                        ),
                    )
                    for p in t.partitions
                ),
            )
            for t in request.topics
        )
    )
