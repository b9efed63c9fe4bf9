"""LeaveGroup: members leave at once, so that the group need not await their session timeout.

Version 3 takes several members, also by group.instance.id (KIP-345).
"""

from __future__ import annotations

from headwater.errors import KafkaError
from headwater.ports.authorizer import Operation
from headwater.wire.apis.k13_leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from headwater_broker.api.context import RequestContext
from headwater_broker.api.group_authorization import require_group
from headwater_broker.api.registry import handles

BATCH_SINCE = 3


@handles(LeaveGroupRequest, LeaveGroupResponse)
async def leave_group(ctx: RequestContext, request: LeaveGroupRequest) -> LeaveGroupResponse:
    """One error code per member; before version 3 there is one member, and one code."""
    is_batch = ctx.api_version >= BATCH_SINCE
    members = request.members if is_batch else (MemberIdentity(member_id=request.member_id),)
    try:
        require_group(ctx, Operation.READ, request.group_id)
        rows = await ctx.broker.groups.leave(request.group_id, members)
    except KafkaError as error:
        return LeaveGroupResponse(error_code=error.code)
    if is_batch:
        return LeaveGroupResponse(members=tuple(rows))
    return LeaveGroupResponse(error_code=rows[0].error_code)
