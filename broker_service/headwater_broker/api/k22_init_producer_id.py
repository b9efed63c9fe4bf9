"""InitProducerId: a producer id and epoch (KIP-98, KIP-360).

An idempotent producer gets a new id with epoch 0, also when it sends its old id. A transactional
producer gets its next epoch from the coordinator of its transactional id. Version 6 prepares
transactions (KIP-939); it is advertised when `transaction.two.phase.commit.enable` is true.
"""

from __future__ import annotations

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Operation, ResourceType
from headwater.wire.apis.k22_init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from headwater_broker.api.admin.forwarding import may_on_cluster
from headwater_broker.api.context import RequestContext
from headwater_broker.api.registry import handles
from headwater_broker.api.transaction_requests import client_code, require_transactional_id
from headwater_broker.coordinator.transaction.transaction import ClientIdentity, ProducerIdentity

NO_PRODUCER_ID = -1
NO_EPOCH = -1
FENCED_SINCE = 4
"""Clients know PRODUCER_FENCED from this version on (KIP-588)."""
TWO_PHASE_SINCE = 6


@handles(InitProducerIdRequest, InitProducerIdResponse)
async def init_producer_id(
    ctx: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    """A new id from this broker's block, or what the transactional id's coordinator answers."""
    if request.transactional_id is not None:
        return await _transactional(ctx, request, request.transactional_id)
    if ctx.api_version >= TWO_PHASE_SINCE and not ctx.broker.transactions.is_two_phase_enabled:
        return InitProducerIdResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION, producer_id=-1, producer_epoch=-1
        )
    if not _may_write_idempotently(ctx):
        return InitProducerIdResponse(
            error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, producer_id=-1, producer_epoch=-1
        )
    try:
        producer_id = await ctx.broker.producer_ids.fresh()
    except KafkaError as error:
        return InitProducerIdResponse(
            error_code=_client_error(error.code), producer_id=-1, producer_epoch=-1
        )
    return InitProducerIdResponse(error_code=ErrorCode.NONE, producer_id=producer_id)


async def _transactional(
    ctx: RequestContext, request: InitProducerIdRequest, transactional_id: str
) -> InitProducerIdResponse:
    try:
        _check_rights(ctx, request, transactional_id)
        made = await ctx.broker.transactions.init_producer_id(
            transactional_id,
            request.transaction_timeout_ms,
            _expected(request),
            client=ClientIdentity(
                f"{ctx.principal.kind}:{ctx.principal.name}", ctx.client_id or "", ctx.client_host
            ),
            two_phase=request.enable2_pc,
            keep_prepared=request.keep_prepared_txn,
        )
    except KafkaError as error:
        code = client_code(error.code, ctx.api_version, FENCED_SINCE)
        return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
    ongoing = made.ongoing or ProducerIdentity(NO_PRODUCER_ID, NO_EPOCH)
    return InitProducerIdResponse(
        error_code=ErrorCode.NONE,
        producer_id=made.identity.producer_id,
        producer_epoch=made.identity.epoch,
        ongoing_txn_producer_id=ongoing.producer_id,
        ongoing_txn_producer_epoch=ongoing.epoch,
    )


def _check_rights(
    ctx: RequestContext, request: InitProducerIdRequest, transactional_id: str
) -> None:
    if ctx.api_version >= TWO_PHASE_SINCE and not ctx.broker.transactions.is_two_phase_enabled:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION, "transaction.two.phase.commit.enable is false"
        )
    require_transactional_id(ctx, Operation.WRITE, transactional_id)
    if request.enable2_pc:
        require_transactional_id(ctx, Operation.TWO_PHASE_COMMIT, transactional_id)


def _expected(request: InitProducerIdRequest) -> ProducerIdentity | None:
    """The id and epoch of a producer that recovers. Raises INVALID_REQUEST for half of that."""
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_EPOCH):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a producer id without epoch, or vice versa")
    if request.producer_id == NO_PRODUCER_ID:
        return None
    return ProducerIdentity(request.producer_id, request.producer_epoch)


def _may_write_idempotently(ctx: RequestContext) -> bool:
    """The right to write to any topic includes it (KIP-679)."""
    return may_on_cluster(ctx, Operation.IDEMPOTENT_WRITE) or ctx.session.allows_any(
        Operation.WRITE, ResourceType.TOPIC
    )


def _client_error(code: ErrorCode) -> ErrorCode:
    """COORDINATOR_LOAD_IN_PROGRESS for retriable errors: Kafka answers it while it has no block of
    ids, and clients retry it at once."""
    return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if code.retriable else code
