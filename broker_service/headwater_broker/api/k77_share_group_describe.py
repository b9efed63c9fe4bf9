"""ShareGroupDescribe: epochs and members of share groups, and what they are assigned (KIP-932)."""

from __future__ import annotations

from dataclasses import replace

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Operation, ResourceType
from headwater.wire.apis.k77_share_group_describe import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from headwater_broker.api.authorized_operations import authorized_operations
from headwater_broker.api.context import RequestContext
from headwater_broker.api.group_authorization import each_group, require_group
from headwater_broker.api.k69_consumer_group_describe import HIDDEN
from headwater_broker.api.registry import handles


@handles(ShareGroupDescribeRequest, ShareGroupDescribeResponse)
async def share_group_describe(
    ctx: RequestContext, request: ShareGroupDescribeRequest
) -> ShareGroupDescribeResponse:
    """One description or error per group."""
    rows = await each_group(request.group_ids, lambda group_id: _describe(ctx, group_id))
    if request.include_authorized_operations:
        rows = [_with_operations(ctx, row) for row in rows]
    return ShareGroupDescribeResponse(groups=tuple(rows))


async def _describe(ctx: RequestContext, group_id: str) -> DescribedGroup:
    try:
        require_group(ctx, Operation.DESCRIBE, group_id)
        row = await ctx.broker.groups.shares.describe(group_id)
    except KafkaError as error:
        return _failed(group_id, error.code, error.detail)
    names = {topic.topic_name for m in row.members for topic in m.assignment.topic_partitions}
    names |= {name for m in row.members for name in m.subscribed_topic_names}
    if all(ctx.allowed(Operation.DESCRIBE, ResourceType.TOPIC, name) for name in sorted(names)):
        return row
    return _failed(group_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED, HIDDEN)


def _failed(group_id: str, code: ErrorCode, detail: str) -> DescribedGroup:
    return DescribedGroup(
        error_code=code,
        error_message=detail or None,
        group_id=group_id,
        group_state="",
        assignor_name="",
    )


def _with_operations(ctx: RequestContext, row: DescribedGroup) -> DescribedGroup:
    if row.error_code:
        return row
    allowed = authorized_operations(ctx, ResourceType.GROUP, row.group_id)
    return replace(row, authorized_operations=allowed)
