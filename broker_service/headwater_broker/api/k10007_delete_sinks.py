"""DeleteSinks: sinks and their participants are forgotten (docs/epochs.md)."""

from __future__ import annotations

import asyncio

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Operation
from headwater.wire.apis.k10007_delete_sinks import (
    DeletedSink,
    DeleteSinksRequest,
    DeleteSinksResponse,
)
from headwater_broker.api.context import RequestContext
from headwater_broker.api.epoch_requests import require_sink
from headwater_broker.api.registry import handles


@handles(DeleteSinksRequest, DeleteSinksResponse)
async def delete_sinks(ctx: RequestContext, request: DeleteSinksRequest) -> DeleteSinksResponse:
    """Refused while an epoch of the sink is not complete."""
    rows = await asyncio.gather(*(_delete(ctx, name) for name in request.sinks))
    return DeleteSinksResponse(sinks=tuple(rows))


async def _delete(ctx: RequestContext, name: str) -> DeletedSink:
    try:
        require_sink(ctx, Operation.WRITE, name)
        await ctx.broker.sinks.delete(name)
    except KafkaError as error:
        return DeletedSink(sink=name, error_code=error.code, error_message=error.detail or None)
    return DeletedSink(sink=name, error_code=ErrorCode.NONE)
