"""DescribeGroups: state, protocol and members. Before version 6 an unknown group is Dead, not an
error."""

from __future__ import annotations

from dataclasses import replace

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Operation, ResourceType
from headwater.wire.apis.k15_describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from headwater_broker.api.authorized_operations import authorized_operations
from headwater_broker.api.context import RequestContext
from headwater_broker.api.group_authorization import each_group, require_group
from headwater_broker.api.registry import handles

NOT_FOUND_SINCE = 6


@handles(DescribeGroupsRequest, DescribeGroupsResponse)
async def describe_groups(
    ctx: RequestContext, request: DescribeGroupsRequest
) -> DescribeGroupsResponse:
    """One description or error per group."""
    rows = await each_group(request.groups, lambda group_id: _describe(ctx, group_id))
    if request.include_authorized_operations:
        rows = [_with_operations(ctx, row) for row in rows]
    return DescribeGroupsResponse(groups=tuple(rows))


async def _describe(ctx: RequestContext, group_id: str) -> DescribedGroup:
    try:
        require_group(ctx, Operation.DESCRIBE, group_id)
        row: DescribedGroup = await ctx.broker.groups.describe(group_id)
    except KafkaError as error:
        row = DescribedGroup(error_code=error.code, error_message=error.detail, group_id=group_id)
    if ctx.api_version >= NOT_FOUND_SINCE:
        return row
    if row.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        row = replace(row, error_code=ErrorCode.NONE)
    return replace(row, error_message=None)


def _with_operations(ctx: RequestContext, row: DescribedGroup) -> DescribedGroup:
    if row.error_code:
        return row
    allowed = authorized_operations(ctx, ResourceType.GROUP, row.group_id)
    return replace(row, authorized_operations=allowed)
