"""EpochHeartbeat: moves the deadline of an epoch transaction (docs/epochs.md)."""

from __future__ import annotations

from headwater.errors import KafkaError
from headwater.wire.apis.k10005_epoch_heartbeat import (
    EpochHeartbeatRequest,
    EpochHeartbeatResponse,
)
from headwater.wire.epoch_values import EpochStatus
from headwater_broker.api.context import RequestContext
from headwater_broker.api.epoch_requests import epoch_request
from headwater_broker.api.registry import handles


@handles(EpochHeartbeatRequest, EpochHeartbeatResponse)
async def epoch_heartbeat(
    ctx: RequestContext, request: EpochHeartbeatRequest
) -> EpochHeartbeatResponse:
    """OPEN while the epoch is; else how it ended."""
    try:
        reply = await ctx.broker.sinks.heartbeat(epoch_request(ctx, request))
    except KafkaError as error:
        return EpochHeartbeatResponse(
            error_code=error.code,
            error_message=error.detail or None,
            status=EpochStatus.ABORTED,
        )
    return EpochHeartbeatResponse(status=reply.status)
