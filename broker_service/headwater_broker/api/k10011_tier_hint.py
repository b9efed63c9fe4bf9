"""TierHint: this broker reads the end of the topic's Delta table now, not at its next interval."""

from __future__ import annotations

from headwater.errors import ErrorCode
from headwater.ports.authorizer import Operation
from headwater.wire.apis.k10011_tier_hint import TierHintRequest, TierHintResponse
from headwater_broker.api.admin.forwarding import may_on_topic
from headwater_broker.api.context import RequestContext
from headwater_broker.api.registry import handles


@handles(TierHintRequest, TierHintResponse)
async def tier_hint(ctx: RequestContext, request: TierHintRequest) -> TierHintResponse:
    """Read on the topic; without it the topic's id is unknown."""
    known = ctx.broker.view.topic_by_id.get(request.topic_id)
    if known is None or not may_on_topic(ctx, Operation.READ, known.name):
        return TierHintResponse(error_code=ErrorCode.UNKNOWN_TOPIC_ID)
    is_read = await ctx.controls.read_table(known.name, known.topic_id)
    code = ErrorCode.NONE if is_read else ErrorCode.KAFKA_STORAGE_ERROR
    return TierHintResponse(error_code=code)
