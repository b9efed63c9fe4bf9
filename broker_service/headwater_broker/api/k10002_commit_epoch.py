"""CommitEpoch: one record commits every named participant of an epoch (docs/epochs.md)."""

from __future__ import annotations

from headwater.errors import KafkaError
from headwater.wire.apis.k10002_commit_epoch import CommitEpochRequest, CommitEpochResponse
from headwater.wire.epoch_values import EpochStatus
from headwater_broker.api.context import RequestContext
from headwater_broker.api.epoch_requests import epoch_request, named_participants
from headwater_broker.api.registry import handles


@handles(CommitEpochRequest, CommitEpochResponse)
async def commit_epoch(ctx: RequestContext, request: CommitEpochRequest) -> CommitEpochResponse:
    """Answered when every partition holds its marker, or after some seconds without that."""
    try:
        reply = await ctx.broker.sinks.commit_epoch(
            epoch_request(ctx, request, request.kind),
            named_participants(request.participants),
            is_prepared=request.is_prepared,
        )
    except KafkaError as error:
        return CommitEpochResponse(
            error_code=error.code,
            error_message=error.detail or None,
            status=EpochStatus.ABORTED,
        )
    return CommitEpochResponse(
        status=reply.status, last_epoch=reply.last_epoch, is_complete=reply.is_complete
    )
