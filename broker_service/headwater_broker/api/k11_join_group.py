"""JoinGroup: a member joins its group; answered when the rebalance completes.

From version 4 on a new dynamic member first gets its id and joins again with it (KIP-394). In
version 0 the session timeout is also the rebalance timeout.
"""

from __future__ import annotations

from dataclasses import replace

from headwater.errors import KafkaError
from headwater.ports.authorizer import Operation
from headwater.wire.apis.k11_join_group import JoinGroupRequest, JoinGroupResponse
from headwater_broker.api.context import RequestContext
from headwater_broker.api.group_authorization import require_group
from headwater_broker.api.registry import handles
from headwater_broker.coordinator.group.classic.rebalance import MemberJoin, failed_join

KNOWN_ID_SINCE = 4
NULL_PROTOCOL_SINCE = 7
SKIP_ASSIGNMENT_SINCE = 9


@handles(JoinGroupRequest, JoinGroupResponse)
async def join_group(ctx: RequestContext, request: JoinGroupRequest) -> JoinGroupResponse:
    """Await the rebalance."""
    timeout_ms = request.rebalance_timeout_ms
    try:
        require_group(ctx, Operation.READ, request.group_id)
        reply = await ctx.broker.groups.join(
            MemberJoin(
                group_id=request.group_id,
                member_id=request.member_id,
                instance_id=request.group_instance_id,
                client_id=ctx.client_id or "",
                client_host=f"/{ctx.client_host}",
                session_timeout_ms=request.session_timeout_ms,
                rebalance_timeout_ms=request.session_timeout_ms if timeout_ms < 0 else timeout_ms,
                protocol_type=request.protocol_type,
                protocols=tuple((p.name, bytes(p.metadata)) for p in request.protocols),
                fresh_id="",
                needs_known_id=ctx.api_version >= KNOWN_ID_SINCE,
                may_skip_assignment=ctx.api_version >= SKIP_ASSIGNMENT_SINCE,
            )
        )
    except KafkaError as error:
        reply = failed_join(error.code, request.member_id)
    if reply.protocol_name is None and ctx.api_version < NULL_PROTOCOL_SINCE:
        reply = replace(reply, protocol_name="")
    return reply
