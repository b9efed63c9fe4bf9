"""TakeOverSink: another query, or another checkpoint, goes on with a sink (docs/epochs.md)."""

from __future__ import annotations

from headwater.errors import KafkaError
from headwater.ports.authorizer import Operation
from headwater.wire.apis.k10008_take_over_sink import TakeOverSinkRequest, TakeOverSinkResponse
from headwater_broker.api.context import RequestContext
from headwater_broker.api.epoch_requests import require_sink
from headwater_broker.api.registry import handles


@handles(TakeOverSinkRequest, TakeOverSinkResponse)
async def take_over_sink(ctx: RequestContext, request: TakeOverSinkRequest) -> TakeOverSinkResponse:
    """The present run is fenced; the reply has the state before."""
    try:
        require_sink(ctx, Operation.WRITE, request.sink)
        before = await ctx.broker.sinks.take_over(request.sink, request.owner, request.last_epoch)
    except KafkaError as error:
        return TakeOverSinkResponse(error_code=error.code, error_message=error.detail or None)
    return TakeOverSinkResponse(previous_owner=before.owner, previous_last_epoch=before.last_epoch)
