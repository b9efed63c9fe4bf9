"""ConsumerGroupHeartbeat: joins, keeps, reconciles and leaves a consumer group (KIP-848).

From version 1 on the client makes its member id, and may subscribe by a pattern.
"""

from __future__ import annotations

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Operation, ResourceType
from headwater.wire.apis.k68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from headwater_broker.api.context import RequestContext
from headwater_broker.api.group_authorization import require_group
from headwater_broker.api.registry import handles
from headwater_broker.coordinator.group.consumer.heartbeat_request import Heartbeat

NAMES_ITSELF_SINCE = 1


@handles(ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, begins_at_once=True)
async def consumer_group_heartbeat(
    ctx: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    """The member's epoch, and its assignment when that is new."""
    try:
        require_group(ctx, Operation.READ, request.group_id)
        for name in request.subscribed_topic_names or ():
            if not ctx.allowed(Operation.DESCRIBE, ResourceType.TOPIC, name):
                raise KafkaError(
                    ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"no DESCRIBE on topic {name}"
                )
        return await ctx.broker.groups.consumers.heartbeat(_heartbeat(ctx, request))
    except KafkaError as error:
        return ConsumerGroupHeartbeatResponse(
            error_code=error.code, error_message=error.detail or None
        )


def _heartbeat(ctx: RequestContext, request: ConsumerGroupHeartbeatRequest) -> Heartbeat:
    names = request.subscribed_topic_names
    rows = request.topic_partitions
    owned = None
    if rows is not None:
        owned = {r.topic_id: frozenset(r.partitions) for r in rows if r.partitions}
    return Heartbeat(
        group_id=request.group_id,
        member_id=request.member_id,
        epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topics=None if names is None else frozenset(names),
        regex=request.subscribed_topic_regex,
        assignor=request.server_assignor,
        owned=owned,
        client_id=ctx.client_id or "",
        client_host=f"/{ctx.client_host}",
        may_describe=lambda name: ctx.allowed(Operation.DESCRIBE, ResourceType.TOPIC, name),
        names_itself=ctx.api_version >= NAMES_ITSELF_SINCE,
    )
