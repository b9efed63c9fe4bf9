"""DeleteShareGroupOffsets: an empty share group forgets topics (KIP-932)."""

from __future__ import annotations

from uuid import UUID

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Operation, ResourceType
from headwater.wire.apis.k92_delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from headwater_broker.api.context import RequestContext
from headwater_broker.api.group_authorization import require_group
from headwater_broker.api.registry import handles

NO_TOPIC = UUID(int=0)


@handles(DeleteShareGroupOffsetsRequest, DeleteShareGroupOffsetsResponse)
async def delete_share_group_offsets(
    ctx: RequestContext, request: DeleteShareGroupOffsetsRequest
) -> DeleteShareGroupOffsetsResponse:
    """DELETE on the group and READ on each topic; one code per topic, or one for the group."""
    names = [topic.topic_name for topic in request.topics]
    allowed = [name for name in names if ctx.allowed(Operation.READ, ResourceType.TOPIC, name)]
    try:
        require_group(ctx, Operation.DELETE, request.group_id)
        deletion, failed = await ctx.broker.groups.shares.delete_offsets(request.group_id, allowed)
    except KafkaError as refusal:
        return DeleteShareGroupOffsetsResponse(
            error_code=refusal.code, error_message=refusal.detail or None, responses=()
        )
    rows = []
    for name in names:
        known = ctx.broker.view.topics.get(name)
        topic_id, code, detail = NO_TOPIC, ErrorCode.NONE, ""
        if name not in allowed:
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif name in deletion.unknown or known is None:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            topic_id = known.topic_id
            error = failed.get(topic_id)
            if error is not None:
                code, detail = error.code, error.detail
        rows.append(
            DeleteShareGroupOffsetsResponseTopic(
                topic_name=name, topic_id=topic_id, error_code=code, error_message=detail or None
            )
        )
    return DeleteShareGroupOffsetsResponse(error_code=ErrorCode.NONE, responses=tuple(rows))
