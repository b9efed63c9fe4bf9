"""AllocateEpochTicket: a number that orders the runs of a sink (docs/epochs.md).

A ticket gives no right to any sink; it needs WRITE on some transactional id.
"""

from __future__ import annotations

from headwater.errors import ErrorCode, KafkaError
from headwater.wire.apis.k10000_allocate_epoch_ticket import (
    AllocateEpochTicketRequest,
    AllocateEpochTicketResponse,
)
from headwater_broker.api.context import RequestContext
from headwater_broker.api.epoch_requests import may_allocate_tickets
from headwater_broker.api.registry import handles


@handles(AllocateEpochTicketRequest, AllocateEpochTicketResponse)
async def allocate_epoch_ticket(
    ctx: RequestContext, request: AllocateEpochTicketRequest
) -> AllocateEpochTicketResponse:
    """A ticket that is higher than every one before."""
    try:
        if not may_allocate_tickets(ctx):
            detail = "no WRITE on any transactional id"
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, detail)
        ticket = await ctx.broker.sinks.allocate_ticket()
    except KafkaError as error:
        return AllocateEpochTicketResponse(
            error_code=error.code, error_message=error.detail or None
        )
    return AllocateEpochTicketResponse(error_code=ErrorCode.NONE, ticket=ticket)
