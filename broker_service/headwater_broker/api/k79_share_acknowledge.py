"""ShareAcknowledge, versions 1 and 2: a member says what became of its records (KIP-932).

The answer waits until all of it is durable. Epoch -1 closes the share session, which gives back the
records that the member still holds. Version 2: renewed locks (KIP-1222).
"""

from __future__ import annotations

from collections.abc import Awaitable
from uuid import UUID

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Operation, ResourceType
from headwater.wire.apis.k79_share_acknowledge import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from headwater_broker.api.context import RequestContext
from headwater_broker.api.listener_endpoints import endpoints
from headwater_broker.api.registry import handles
from headwater_broker.api.share.acknowledgements import Acknowledger, Outcomes
from headwater_broker.api.share.response_codec import LEADER_MOVED, leader_hint
from headwater_broker.replica.share.sessions import FINAL_EPOCH, INITIAL_EPOCH, ShareSession
from headwater_broker.replica.share.share_partition_manager import ShareManager

RENEW_SINCE = 2


@handles(ShareAcknowledgeRequest, ShareAcknowledgeResponse)
def share_acknowledge(
    ctx: RequestContext, request: ShareAcknowledgeRequest
) -> ShareAcknowledgeResponse | Awaitable[ShareAcknowledgeResponse]:
    """Apply all acknowledgements, and answer once they are durable."""
    shares = ctx.broker.shares
    group_id, member_id = request.group_id or "", request.member_id or ""
    if not ctx.allowed(Operation.READ, ResourceType.GROUP, group_id):
        raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED, f"no READ on group {group_id}")
    if not group_id or not member_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "acknowledgements name group and member")
    session = _session(shares, group_id, member_id, request.share_session_epoch)
    acknowledger = Acknowledger(
        ctx.broker,
        shares,
        ctx.session,
        group_id,
        member_id,
        may_renew=ctx.api_version >= RENEW_SINCE and request.is_renew_ack,
    )
    for topic in request.topics:
        for row in topic.partitions:
            key = (topic.topic_id, row.partition_index)
            acknowledger.apply(key, row.acknowledgement_batches)
    closes = session if request.share_session_epoch == FINAL_EPOCH else None
    return _answer(ctx, shares, acknowledger, group_id, closes)


def _session(shares: ShareManager, group_id: str, member_id: str, epoch: int) -> ShareSession:
    if epoch == INITIAL_EPOCH:
        raise KafkaError(
            ErrorCode.INVALID_SHARE_SESSION_EPOCH, "only ShareFetch opens a share session"
        )
    if epoch == FINAL_EPOCH:
        return shares.sessions.find(group_id, member_id)
    return shares.sessions.go_on(group_id, member_id, epoch)


async def _answer(
    ctx: RequestContext,
    shares: ShareManager,
    acknowledger: Acknowledger,
    group_id: str,
    closes: ShareSession | None,
) -> ShareAcknowledgeResponse:
    outcomes = await acknowledger.settled()
    if closes is not None:
        shares.sessions.close(closes)
    lock_ms = shares.settings_of(group_id).share_record_lock_duration_ms
    return _response(ctx, outcomes, lock_ms)


def _response(ctx: RequestContext, outcomes: Outcomes, lock_ms: int) -> ShareAcknowledgeResponse:
    leaders: set[int] = set()
    topics: dict[UUID, list[PartitionData]] = {}
    for (topic_id, index), outcome in outcomes.items():
        leader, epoch = leader_hint(ctx.broker, outcome.name, index, outcome.code)
        if outcome.code in LEADER_MOVED:
            leaders.add(leader)
        topics.setdefault(topic_id, []).append(
            PartitionData(
                partition_index=index,
                error_code=outcome.code,
                error_message=outcome.message,
                current_leader=LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch),
            )
        )
    return ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=lock_ms,
        responses=tuple(
            ShareAcknowledgeTopicResponse(topic_id=topic_id, partitions=tuple(rows))
            for topic_id, rows in topics.items()
        ),
        node_endpoints=tuple(
            NodeEndpoint(node_id=n.node_id, host=n.host, port=n.port, rack=n.rack)
            for n in endpoints(ctx.broker, ctx.listener, leaders)
        ),
    )
