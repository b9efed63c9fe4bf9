"""InitProducerId: a new producer id with epoch 0 for an idempotent producer (KIP-98, KIP-360).

A producer that sends its old id also gets a new one. Transactional ids have no coordinator yet:
their refusal is final, so that clients do not look for a coordinator for ever. Version 6 (KIP-939)
is unstable in Kafka 4.3 and not advertised.
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


@handles(InitProducerIdRequest, InitProducerIdResponse, versions=(0, 5))
async def init_producer_id(
    ctx: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    """A new id from this broker's block."""
    if request.transactional_id is not None:
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


def _may_write_idempotently(ctx: RequestContext) -> bool:
    """The right to write to any topic includes it (KIP-679)."""
    return may_on_cluster(ctx, Operation.IDEMPOTENT_WRITE) or ctx.session.allows_any(
        Operation.WRITE, ResourceType.TOPIC
    )


def _client_error(code: ErrorCode) -> ErrorCode:
    """COORDINATOR_LOAD_IN_PROGRESS for retriable errors: Kafka answers it while it has no block of
    ids, and clients retry it at once."""
    return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if code.retriable else code
