"""EndTxn: the outcome of a transaction (KIP-98).

Version 5 is sent by clients of transaction version 2 (KIP-890): the reply carries the epoch, or the
producer id, to go on with.
"""

from __future__ import annotations

import struct

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Operation, ResourceType
from headwater.wire.apis.k26_end_txn import EndTxnRequest, EndTxnResponse
from headwater_broker.api.context import RequestContext
from headwater_broker.api.raw_connection import Peer
from headwater_broker.api.registry import handles
from headwater_broker.api.transaction_requests import client_code, require_transactional_id
from headwater_broker.coordinator.transaction.transaction import TRANSACTION_V2, ProducerIdentity

EPOCH_RAISED_SINCE = 5
ABORTABLE_SINCE = 4
"""Clients know TRANSACTION_ABORTABLE from this version on (KIP-890)."""
TRANSACTION_V0 = 0
SHORT_MAX = 0x7F
"""A compact string whose size is below it has one byte of size."""
_PRODUCER = struct.Struct(">qhBB")
"""Producer id, epoch, committed, tagged fields: what follows the transactional id."""
_pack_reply = struct.Struct(">iiBihqhB").pack
_REPLY_BYTES = 22
"""Behind the size."""


def end_at_once(
    peer: Peer, view: memoryview, at: int, end: int, version: int, correlation_id: int
) -> bytes | None:
    """EndTxn of transaction version 2 that its coordinator decides at once: see `registry.AtOnce`.
    The codec is the oracle of its test."""
    size = view[at] if at < end else 0
    stop = at + size
    if version != EPOCH_RAISED_SINCE or not 1 < size < SHORT_MAX or stop + _PRODUCER.size != end:
        return None
    transactional_id = str(view[at + 1 : stop], "utf-8")
    producer_id, epoch, is_commit, tags = _PRODUCER.unpack_from(view, stop)
    if tags or not peer.session.has_allowed(
        Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id
    ):
        return None
    following = peer.services.transactions.end_at_once(
        transactional_id, ProducerIdentity(producer_id, epoch), commit=is_commit != 0
    )
    if following is None:
        return None
    return _pack_reply(_REPLY_BYTES, correlation_id, 0, 0, ErrorCode.NONE, *following, 0)


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
