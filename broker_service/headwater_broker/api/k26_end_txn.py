"""EndTxn: the outcome of a transaction (KIP-98).

Version 5 is sent by clients of transaction version 2 (KIP-890): the reply carries the epoch, or the
producer id, to go on with.
"""

from __future__ import annotations

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Operation
from headwater.wire.apis.k26_end_txn import EndTxnRequest, EndTxnResponse
from headwater_broker.api.context import RequestContext
from headwater_broker.api.registry import handles
from headwater_broker.api.transaction_requests import client_code, require_transactional_id
from headwater_broker.coordinator.transaction.transaction import TRANSACTION_V2, ProducerIdentity

EPOCH_RAISED_SINCE = 5
ABORTABLE_SINCE = 4
"""Clients know TRANSACTION_ABORTABLE from this version on (KIP-890)."""
TRANSACTION_V0 = 0


@handles(EndTxnRequest, EndTxnResponse, begins_at_once=True)
async def end_txn(ctx: RequestContext, request: EndTxnRequest) -> EndTxnResponse:
    """Answered when the outcome is durable; the markers follow."""
    is_v2 = ctx.api_version >= EPOCH_RAISED_SINCE
    try:
        require_transactional_id(ctx, Operation.WRITE, request.transactional_id)
        following = await ctx.broker.transactions.end_transaction(
            request.transactional_id,
            ProducerIdentity(request.producer_id, request.producer_epoch),
            commit=request.committed,
            client_version=TRANSACTION_V2 if is_v2 else TRANSACTION_V0,
            connection=None if is_v2 else ctx.session.number,
        )
    except KafkaError as error:
        code = error.code
        if code is ErrorCode.TRANSACTION_ABORTABLE and ctx.api_version < ABORTABLE_SINCE:
            code = ErrorCode.PRODUCER_FENCED
        return EndTxnResponse(error_code=client_code(code, ctx.api_version))
    return EndTxnResponse(
        error_code=ErrorCode.NONE,
        producer_id=following.producer_id,
        producer_epoch=following.epoch,
    )
