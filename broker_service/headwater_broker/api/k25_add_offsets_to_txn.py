"""AddOffsetsToTxn: enlists the group's partition of `__consumer_offsets` (KIP-98)."""

from __future__ import annotations

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Operation, ResourceType
from headwater.wire.apis.k25_add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from headwater_broker.api.context import RequestContext
from headwater_broker.api.group_authorization import require_group
from headwater_broker.api.k10_find_coordinator import create_coordinator_topic
from headwater_broker.api.raw_connection import Peer
from headwater_broker.api.registry import handles
from headwater_broker.api.short_fields import done, is_end, short_producer, short_text
from headwater_broker.api.transaction_requests import (
    client_code,
    has_own_id,
    require_transactional_id,
)
from headwater_broker.coordinator.common.service import CoordinatorType
from headwater_broker.coordinator.transaction.service import check_transactional_id
from headwater_broker.coordinator.transaction.transaction import ProducerIdentity

FLEXIBLE_SINCE = AddOffsetsToTxnRequest.flexible


def add_at_once(
    peer: Peer, view: memoryview, at: int, end: int, version: int, correlation_id: int
) -> bytes | None:
    """AddOffsetsToTxn of a group that is new to the transaction: see `registry.AtOnce`. The codec
    is the oracle of its test."""
    is_flexible = version >= FLEXIBLE_SINCE
    transactional_id, at = short_text(view, at, flexible=is_flexible)
    if not transactional_id:
        return None
    producer, at = short_producer(view, at)
    group_id, at = short_text(view, at, flexible=is_flexible)
    if not group_id or not is_end(view, at, end, flexible=is_flexible):
        return None
    services = peer.services
    groups = services.coordinators[CoordinatorType.GROUP]
    topic = services.view.topics.get(groups.topic)
    if (
        topic is None
        or not has_own_id(peer, transactional_id)
        or not peer.session.has_allowed(Operation.READ, ResourceType.GROUP, group_id)
    ):
        return None
    partitions = {(groups.topic, groups.partition_of(group_id)): topic.topic_id}
    is_added = services.transactions.add_at_once(
        transactional_id, producer, partitions, peer.session.number
    )
    return done(correlation_id, flexible=is_flexible) if is_added else None


@handles(AddOffsetsToTxnRequest, AddOffsetsToTxnResponse, begins_at_once=True, at_once=add_at_once)
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
