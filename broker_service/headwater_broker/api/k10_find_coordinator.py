"""FindCoordinator: which broker leads the partition that a group belongs to.

The internal topic is created when the first group is looked for. Version 4 asks for several keys at
once (KIP-699). Transactional ids and share groups have no coordinator here yet: they are refused
for good, so that clients do not look for ever. Of all refusals of a transactional id librdkafka
takes only that of a right as final, here and from InitProducerId.
"""

from __future__ import annotations

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Operation, ResourceType
from headwater.topic_names import OFFSETS_TOPIC
from headwater.wire.apis.k10_find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from headwater_broker.api.admin.forwarding import await_view, have_leaders
from headwater_broker.api.context import RequestContext
from headwater_broker.api.k03_metadata import create_on_demand
from headwater_broker.api.listener_endpoints import Endpoint, endpoints
from headwater_broker.api.registry import handles

GROUP_KEY = 0
TRANSACTION_KEY = 1
NO_TRANSACTIONS = "Headwater has no transactions: leave transactional.id out"
BATCH_SINCE = 4
CREATE_WAIT_MS = 3_000
"""How long the very first look-up waits for the internal topic; then the client asks again."""


@handles(FindCoordinatorRequest, FindCoordinatorResponse)
async def find_coordinator(
    ctx: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    """One answer per key."""
    is_batch = ctx.api_version >= BATCH_SINCE
    keys = request.coordinator_keys if is_batch else (request.key,)
    if request.key_type == GROUP_KEY and any(_may_describe(ctx, key) for key in keys):
        await _make_topic(ctx)
    rows = tuple(_find(ctx, request.key_type, key) for key in keys)
    if is_batch:
        return FindCoordinatorResponse(coordinators=rows)
    row = rows[0]
    return FindCoordinatorResponse(
        error_code=row.error_code,
        error_message=row.error_message,
        node_id=row.node_id,
        host=row.host,
        port=row.port,
    )


def _may_describe(ctx: RequestContext, key: str) -> bool:
    return ctx.allowed(Operation.DESCRIBE, ResourceType.GROUP, key)


async def _make_topic(ctx: RequestContext) -> None:
    """Once for all keys of a request: while nobody can make it, each would wait in its turn. Tried
    again when more brokers live: there may have been too few for its replicas."""
    services = ctx.broker
    if OFFSETS_TOPIC in services.view.topics or not services.view.is_complete:
        return
    wanted = [(OFFSETS_TOPIC, services.config.offsets_partitions)]
    tried_with = 0

    def is_made() -> bool:
        nonlocal tried_with
        if (live := len(services.view.brokers)) > tried_with:
            tried_with = live
            create_on_demand(services, (OFFSETS_TOPIC,), str(ctx.principal.name))
        return have_leaders(services, wanted)

    await await_view(services, is_made, CREATE_WAIT_MS)


def _find(ctx: RequestContext, key_type: int, key: str) -> Coordinator:
    try:
        found = _endpoint(ctx, key_type, key)
    except KafkaError as error:
        return Coordinator(
            key=key,
            node_id=-1,
            host="",
            port=-1,
            error_code=error.code,
            error_message=error.detail or None,
        )
    return Coordinator(key=key, node_id=found.node_id, host=found.host, port=found.port)


def _endpoint(ctx: RequestContext, key_type: int, key: str) -> Endpoint:
    services = ctx.broker
    if key_type == TRANSACTION_KEY:
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, NO_TRANSACTIONS)
    if key_type != GROUP_KEY:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION, f"no coordinators of key type {key_type}, only of groups"
        )
    if not _may_describe(ctx, key):
        raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED, f"no DESCRIBE on group {key}")
    partition = services.groups.partition_of(key)
    state = services.view.partition(OFFSETS_TOPIC, partition)
    leader_id = -1 if state is None else state.leader_id
    found = endpoints(services, ctx.listener, (leader_id,))
    if not found:
        raise KafkaError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            f"{OFFSETS_TOPIC}-{partition} has no live leader now",
        )
    return found[0]
