"""PrepareEpoch: an epoch waits, without a timeout, for CommitEpoch or AbortEpoch (docs/epochs.md).

For a driver whose decision is made elsewhere, as by the commit of a Delta table.
"""

from __future__ import annotations

from headwater.errors import KafkaError
from headwater.wire.apis.k10004_prepare_epoch import PrepareEpochRequest, PrepareEpochResponse
from headwater.wire.epoch_values import EpochStatus
from headwater_broker.api.context import RequestContext
from headwater_broker.api.epoch_requests import epoch_request, named_participants
from headwater_broker.api.registry import handles


@handles(PrepareEpochRequest, PrepareEpochResponse)
async def prepare_epoch(ctx: RequestContext, request: PrepareEpochRequest) -> PrepareEpochResponse:
    """Answered when the record is durable."""
    try:
        reply = await ctx.broker.sinks.prepare_epoch(
            epoch_request(ctx, request, request.kind), named_participants(request.participants)
        )
    except KafkaError as error:
        return PrepareEpochResponse(
            error_code=error.code,
            error_message=error.detail or None,
            status=EpochStatus.ABORTED,
        )
    return PrepareEpochResponse(status=reply.status, last_epoch=reply.last_epoch)
