"""ConsumerGroupDescribe: epochs, members, their present and target assignments (KIP-848).

A group of another kind is GROUP_ID_NOT_FOUND: tools then ask by DescribeGroups.
"""

from __future__ import annotations

from dataclasses import replace

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Operation, ResourceType
from headwater.wire.apis.k69_consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from headwater_broker.api.authorized_operations import authorized_operations
from headwater_broker.api.context import RequestContext
from headwater_broker.api.group_authorization import each_group, require_group
from headwater_broker.api.registry import handles

HIDDEN = "The group has described topic(s) that the client is not authorized to describe."


@handles(ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse)
async def consumer_group_describe(
    ctx: RequestContext, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    """One description or error per group."""
    rows = await each_group(request.group_ids, lambda group_id: _describe(ctx, group_id))
    if request.include_authorized_operations:
        rows = [_with_operations(ctx, row) for row in rows]
    return ConsumerGroupDescribeResponse(groups=tuple(rows))


async def _describe(ctx: RequestContext, group_id: str) -> DescribedGroup:
    try:
        require_group(ctx, Operation.DESCRIBE, group_id)
        row = await ctx.broker.groups.consumers.describe(group_id)
    except KafkaError as error:
        return _failed(group_id, error.code, error.detail)
    names = {
        topic.topic_name
        for member in row.members
        for assignment in (member.assignment, member.target_assignment)
        for topic in assignment.topic_partitions
    }
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
