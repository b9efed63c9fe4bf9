"""AddOffsetsToTxn: enlists the group's partition of `__consumer_offsets` (KIP-98)."""

from __future__ import annotations

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Operation
from headwater.wire.apis.k25_add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from headwater_broker.api.context import RequestContext
from headwater_broker.api.group_authorization import require_group
from headwater_broker.api.k10_find_coordinator import create_coordinator_topic
from headwater_broker.api.registry import handles
from headwater_broker.api.transaction_requests import client_code, require_transactional_id
from headwater_broker.coordinator.common.service import CoordinatorType
from headwater_broker.coordinator.transaction.service import check_transactional_id
from headwater_broker.coordinator.transaction.transaction import ProducerIdentity


@handles(AddOffsetsToTxnRequest, AddOffsetsToTxnResponse, begins_at_once=True)
async def add_offsets_to_txn(
    ctx: RequestContext, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse:
    """The topic is created first, as the group's coordinator may not have been looked up yet."""
    services = ctx.broker
    try:
        require_transactional_id(ctx, Operation.WRITE, request.transactional_id)
        require_group(ctx, Operation.READ, request.group_id)
        check_transactional_id(request.transactional_id)
        groups = services.coordinators[CoordinatorType.GROUP]
        await create_coordinator_topic(ctx, groups)
        partition = (groups.topic, groups.partition_of(request.group_id))
        await services.transactions.add_partitions(
            request.transactional_id,
            ProducerIdentity(request.producer_id, request.producer_epoch),
            {partition: services.view.topics[groups.topic].topic_id},
            connection=ctx.session.number,
        )
    except KafkaError as error:
        return AddOffsetsToTxnResponse(error_code=client_code(error.code, ctx.api_version))
    return AddOffsetsToTxnResponse(error_code=ErrorCode.NONE)
