"""AbortEpoch: one record aborts every participant of an epoch (docs/epochs.md)."""

from __future__ import annotations

from headwater.errors import KafkaError
from headwater.wire.apis.k10003_abort_epoch import AbortEpochRequest, AbortEpochResponse
from headwater.wire.epoch_values import EpochStatus
from headwater_broker.api.context import RequestContext
from headwater_broker.api.epoch_requests import epoch_request
from headwater_broker.api.registry import handles


@handles(AbortEpochRequest, AbortEpochResponse)
async def abort_epoch(ctx: RequestContext, request: AbortEpochRequest) -> AbortEpochResponse:
    """Answered when the decision is durable; the markers follow."""
    try:
        reply = await ctx.broker.sinks.abort_epoch(
            epoch_request(ctx, request, request.kind), is_prepared=request.is_prepared
        )
    except KafkaError as error:
        return AbortEpochResponse(
            error_code=error.code,
            error_message=error.detail or None,
            status=EpochStatus.ABORTED,
        )
    return AbortEpochResponse(status=reply.status, last_epoch=reply.last_epoch)
