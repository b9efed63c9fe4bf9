"""ShareHolds: an owner's locks in share partitions, which outlive time and crashes
(docs/share-groups.md)."""

from __future__ import annotations

import asyncio

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Operation, ResourceType
from headwater.wire.apis.k10013_share_holds import (
    ShareHold,
    ShareHoldPartition,
    ShareHoldsRequest,
    ShareHoldsResponse,
    ShareHoldsResult,
)
from headwater.wire.share_hold_operation import ShareHoldOperation
from headwater_broker.api.context import RequestContext
from headwater_broker.api.registry import handles
from headwater_broker.api.share.acknowledgements import located, topic_name
from headwater_broker.replica.share.led_partition import LedSharePartition, answer_of
from headwater_broker.replica.share.runs import RecordState

_WITHOUT_STATE = frozenset({ErrorCode.INVALID_REQUEST, ErrorCode.GROUP_ID_NOT_FOUND})
"""Why a share partition cannot be loaded of which the group has read nothing."""


@handles(ShareHoldsRequest, ShareHoldsResponse)
async def share_holds(ctx: RequestContext, request: ShareHoldsRequest) -> ShareHoldsResponse:
    """Each partition is answered once its change is durable."""
    try:
        _check(ctx, request)
    except KafkaError as error:
        return ShareHoldsResponse(error_code=error.code, error_message=error.detail or None)
    rows = await asyncio.gather(*(_answer(ctx, request, row) for row in request.partitions))
    return ShareHoldsResponse(partitions=tuple(rows))


def _check(ctx: RequestContext, request: ShareHoldsRequest) -> None:
    describes = request.operation == ShareHoldOperation.DESCRIBE
    right = Operation.DESCRIBE if describes else Operation.READ
    if not ctx.allowed(right, ResourceType.GROUP, request.group_id):
        detail = f"no {right.name} on group {request.group_id}"
        raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED, detail)
    if request.operation not in list(ShareHoldOperation):
        detail = f"operation {request.operation} is none of 0 to {max(ShareHoldOperation)}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, detail)
    if not request.group_id or not (describes or request.owner):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "holds are of a group and an owner")
    if request.operation == ShareHoldOperation.HOLD and not request.member_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "holds begin with the locks of a member")


async def _answer(
    ctx: RequestContext, request: ShareHoldsRequest, row: ShareHoldPartition
) -> ShareHoldsResult:
    key = (row.topic_id, row.partition)
    try:
        partition = located(ctx.broker, ctx.session, key, topic_name(ctx.broker, key))
        led = ctx.broker.shares.find(request.group_id, partition)
        return await _done(request, row, led)
    except KafkaError as error:
        return ShareHoldsResult(
            topic_id=row.topic_id,
            partition=row.partition,
            error_code=error.code,
            error_message=error.detail or None,
        )


async def _done(
    request: ShareHoldsRequest, row: ShareHoldPartition, led: LedSharePartition
) -> ShareHoldsResult:
    try:
        async with led.use() as machine:
            await _change(request, row, led)
            describes = request.operation == ShareHoldOperation.DESCRIBE
            found = [h for h in machine.holds if describes or h.owner == request.owner]
            return ShareHoldsResult(
                topic_id=row.topic_id,
                partition=row.partition,
                error_code=ErrorCode.NONE,
                log_start_offset=led.partition.log.log_start_offset,
                holds=tuple(
                    ShareHold(
                        owner=h.owner, batch=h.batch, first_offset=h.first, last_offset=h.last
                    )
                    for h in found
                ),
            )
    except KafkaError as error:
        if led.machine is None and error.code in _WITHOUT_STATE:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, str(error)) from error
        raise answer_of(error) from error


async def _change(
    request: ShareHoldsRequest, row: ShareHoldPartition, led: LedSharePartition
) -> None:
    owner, ticket, batch = request.owner, request.ticket, row.batch
    ranges = sorted((r.first_offset, r.last_offset) for r in row.ranges)
    for at, (first, last) in enumerate(ranges):
        if not 0 <= first <= last or (at and ranges[at - 1][1] >= first):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"no range apart: {first} to {last}")
    match request.operation:
        case ShareHoldOperation.CLAIM:
            led.loaded().holds.claim(owner, ticket)
        case ShareHoldOperation.HOLD:
            member = request.member_id
            await led.change_holds(ranges, lambda h, r: h.hold(owner, ticket, batch, member, r))
        case ShareHoldOperation.ACCEPT:
            await led.change_holds(ranges, lambda h, r: h.accept(owner, ticket, batch, r))
        case ShareHoldOperation.RELEASE:
            await led.change_holds(ranges, lambda h, r: h.release(owner, ticket, batch, r))
        case ShareHoldOperation.END_ACCEPTED:
            await led.change_holds((), lambda h, _: h.end_all(owner, RecordState.ACKNOWLEDGED))
        case ShareHoldOperation.END_RELEASED:
            await led.change_holds((), lambda h, _: h.end_all(owner, RecordState.AVAILABLE))
