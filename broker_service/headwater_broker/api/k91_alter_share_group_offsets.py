"""AlterShareGroupOffsets: where an empty share group goes on reading (KIP-932)."""

from __future__ import annotations

from uuid import UUID

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Operation, ResourceType
from headwater.wire.apis.k91_alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from headwater_broker.api.context import RequestContext
from headwater_broker.api.group_authorization import require_group
from headwater_broker.api.registry import handles

NO_TOPIC = UUID(int=0)
Outcomes = dict[tuple[str, int], KafkaError]


@handles(AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsResponse)
async def alter_share_group_offsets(
    ctx: RequestContext, request: AlterShareGroupOffsetsRequest
) -> AlterShareGroupOffsetsResponse:
    """READ on the group and on each topic; one code per partition, or one for the group."""
    outcomes: Outcomes = {}
    allowed: list[tuple[str, int, int]] = []
    for topic in request.topics:
        may_read = ctx.allowed(Operation.READ, ResourceType.TOPIC, topic.topic_name)
        for row in topic.partitions:
            if may_read:
                allowed.append((topic.topic_name, row.partition_index, row.start_offset))
            else:
                outcomes[topic.topic_name, row.partition_index] = KafkaError(
                    ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"no READ on topic {topic.topic_name}"
                )
    try:
        require_group(ctx, Operation.READ, request.group_id)
        change, failed = await ctx.broker.groups.shares.alter_offsets(request.group_id, allowed)
    except KafkaError as error:
        return AlterShareGroupOffsetsResponse(
            error_code=error.code, error_message=error.detail or None, responses=()
        )
    for key, code in change.refused.items():
        outcomes[key] = KafkaError(code, code.name)
    names = {start.topic.topic_id: start.topic.name for start in change.starts}
    for share_partition, failure in failed.items():
        outcomes[names[share_partition.topic_id], share_partition.partition] = failure
    return AlterShareGroupOffsetsResponse(
        error_code=ErrorCode.NONE,
        responses=tuple(_topic(ctx, topic, outcomes) for topic in request.topics),
    )


def _topic(
    ctx: RequestContext, topic: AlterShareGroupOffsetsRequestTopic, outcomes: Outcomes
) -> AlterShareGroupOffsetsResponseTopic:
    known = ctx.broker.view.topics.get(topic.topic_name)
    may_read = ctx.allowed(Operation.READ, ResourceType.TOPIC, topic.topic_name)
    rows = []
    for row in topic.partitions:
        error = outcomes.get((topic.topic_name, row.partition_index))
        rows.append(
            AlterShareGroupOffsetsResponsePartition(
                partition_index=row.partition_index,
                error_code=ErrorCode.NONE if error is None else error.code,
                error_message=None if error is None else error.detail or None,
            )
        )
    return AlterShareGroupOffsetsResponseTopic(
        topic_name=topic.topic_name,
        topic_id=known.topic_id if known is not None and may_read else NO_TOPIC,
        partitions=tuple(rows),
    )
