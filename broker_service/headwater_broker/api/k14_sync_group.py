"""SyncGroup: the group leader sends the assignment, and each member gets its part of it.

Members are answered once the assignment is durable.
"""

from __future__ import annotations

from headwater.errors import KafkaError
from headwater.ports.authorizer import Operation
from headwater.wire.apis.k14_sync_group import SyncGroupRequest, SyncGroupResponse
from headwater_broker.api.context import RequestContext
from headwater_broker.api.group_authorization import require_group
from headwater_broker.api.registry import handles


@handles(SyncGroupRequest, SyncGroupResponse)
async def sync_group(ctx: RequestContext, request: SyncGroupRequest) -> SyncGroupResponse:
    """Await the group leader's assignment."""
    try:
        require_group(ctx, Operation.READ, request.group_id)
        reply: SyncGroupResponse = await ctx.broker.groups.sync(request)
    except KafkaError as error:
        reply = SyncGroupResponse(error_code=error.code)
    return reply
