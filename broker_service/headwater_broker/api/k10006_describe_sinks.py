"""DescribeSinks: the sinks of epoch transactions and their epochs (docs/epochs.md)."""

from __future__ import annotations

import asyncio
from uuid import UUID

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Operation, ResourceType
from headwater.wire.apis.k10006_describe_sinks import (
    DescribedSink,
    DescribeSinksRequest,
    DescribeSinksResponse,
)
from headwater.wire.epoch_values import SinkKind
from headwater.wire.sink_names import sink_key
from headwater_broker.api.context import RequestContext
from headwater_broker.api.epoch_requests import require_sink
from headwater_broker.api.registry import handles

NO_RUN = UUID(int=0)


@handles(DescribeSinksRequest, DescribeSinksResponse)
async def describe_sinks(
    ctx: RequestContext, request: DescribeSinksRequest
) -> DescribeSinksResponse:
    """The named sinks, or all with DESCRIBE whose coordinator is this broker."""
    if request.sinks is not None:
        rows = await asyncio.gather(*(_describe(ctx, name) for name in request.sinks))
        return DescribeSinksResponse(sinks=tuple(rows))
    try:
        found = await ctx.broker.sinks.listed()
    except KafkaError as error:
        return DescribeSinksResponse(error_code=error.code, error_message=error.detail or None)
    return DescribeSinksResponse(
        sinks=tuple(
            row
            for row in found
            if ctx.allowed(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, sink_key(row.sink))
        )
    )


async def _describe(ctx: RequestContext, name: str) -> DescribedSink:
    try:
        require_sink(ctx, Operation.DESCRIBE, name)
        found = await ctx.broker.sinks.described(name)
    except KafkaError as error:
        return _failed(name, error.code)
    return _failed(name, ErrorCode.RESOURCE_NOT_FOUND) if found is None else found


def _failed(name: str, code: ErrorCode) -> DescribedSink:
    return DescribedSink(error_code=code, sink=name, owner="", kind=SinkKind.QUERY, run=NO_RUN)
