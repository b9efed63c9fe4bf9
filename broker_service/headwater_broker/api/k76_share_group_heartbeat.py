"""ShareGroupHeartbeat: joins, keeps and leaves a share group (KIP-932)."""

from __future__ import annotations

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Operation, ResourceType
from headwater.wire.apis.k76_share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from headwater_broker.api.context import RequestContext
from headwater_broker.api.group_authorization import require_group
from headwater_broker.api.registry import handles
from headwater_broker.coordinator.group.share.heartbeat import ShareHeartbeat


@handles(ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse, begins_at_once=True)
async def share_group_heartbeat(
    ctx: RequestContext, request: ShareGroupHeartbeatRequest
) -> ShareGroupHeartbeatResponse:
    """The member's epoch, and its assignment when that is new."""
    names = request.subscribed_topic_names
    try:
        require_group(ctx, Operation.READ, request.group_id)
        for name in names or ():
            if not ctx.allowed(Operation.DESCRIBE, ResourceType.TOPIC, name):
                raise KafkaError(
                    ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"no DESCRIBE on topic {name}"
                )
        heartbeat = ShareHeartbeat(
            group_id=request.group_id,
            member_id=request.member_id,
            epoch=request.member_epoch,
            rack_id=request.rack_id,
            topics=None if names is None else frozenset(names),
            client_id=ctx.client_id or "",
            client_host=f"/{ctx.client_host}",
        )
        return await ctx.broker.groups.shares.heartbeat(heartbeat)
    except KafkaError as error:
        return ShareGroupHeartbeatResponse(
            error_code=error.code,
            error_message=error.detail or None,
            member_epoch=0,
            heartbeat_interval_ms=0,
        )
