"""Heartbeat: keeps a member in its group, and tells it that a rebalance has begun."""

from __future__ import annotations

from headwater.errors import KafkaError
from headwater.ports.authorizer import Operation
from headwater.wire.apis.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from headwater_broker.api.context import RequestContext
from headwater_broker.api.group_authorization import require_group
from headwater_broker.api.registry import handles


@handles(HeartbeatRequest, HeartbeatResponse, begins_at_once=True)
async def heartbeat(ctx: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
    """One error code."""
    try:
        require_group(ctx, Operation.READ, request.group_id)
        code = await ctx.broker.groups.heartbeat(
            request.group_id, request.member_id, request.group_instance_id, request.generation_id
        )
    except KafkaError as error:
        code = error.code
    return HeartbeatResponse(error_code=code)
