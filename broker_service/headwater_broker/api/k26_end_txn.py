"""EndTxn: the outcome of a transaction (KIP-98).

Version 5 is sent by clients of transaction version 2 (KIP-890): the reply carries the epoch, or the
producer id, to go on with.
"""

from __future__ import annotations

import struct

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Operation
from headwater.wire.apis.k26_end_txn import EndTxnRequest, EndTxnResponse
from headwater_broker.api.context import RequestContext
from headwater_broker.api.raw_connection import Peer
from headwater_broker.api.registry import handles
from headwater_broker.api.short_fields import done, is_end, short_producer, short_text
from headwater_broker.api.transaction_requests import (
    client_code,
    has_own_id,
    require_transactional_id,
)
from headwater_broker.coordinator.transaction.transaction import TRANSACTION_V2, ProducerIdentity

EPOCH_RAISED_SINCE = 5
FLEXIBLE_SINCE = EndTxnRequest.flexible
ABORTABLE_SINCE = 4
"""Clients know TRANSACTION_ABORTABLE from this version on (KIP-890)."""
TRANSACTION_V0 = 0
_pack_raised = struct.Struct(">iiBihqhB").pack
_RAISED_BYTES = 22
"""Behind the size."""


def end_at_once(
    peer: Peer, view: memoryview, at: int, end: int, version: int, correlation_id: int
) -> bytes | None:
    """EndTxn that its coordinator decides at once: see `registry.AtOnce`. The codec is the oracle
    of its test."""
    is_flexible, is_v2 = version >= FLEXIBLE_SINCE, version >= EPOCH_RAISED_SINCE
    transactional_id, at = short_text(view, at, flexible=is_flexible)
    if not transactional_id or not has_own_id(peer, transactional_id):
        return None
    producer, at = short_producer(view, at)
    is_commit = view[at] != 0
    if not is_end(view, at + 1, end, flexible=is_flexible):
        return None
    following = peer.services.transactions.end_at_once(
        transactional_id,
        producer,
        commit=is_commit,
        client_version=TRANSACTION_V2 if is_v2 else TRANSACTION_V0,
        connection=None if is_v2 else peer.session.number,
    )
    if following is None:
        return None
    if not is_v2:
        return done(correlation_id, flexible=is_flexible)
    return _pack_raised(_RAISED_BYTES, correlation_id, 0, 0, 0, *following, 0)


@handles(EndTxnRequest, EndTxnResponse, begins_at_once=True, at_once=end_at_once)
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
