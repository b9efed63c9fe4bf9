"""FindCoordinator: the broker that leads a key's partition of its internal topic.

The internal topic is created when the first coordinator of its kind is looked up. Version 4 has
several keys per request (KIP-699). The coordinators of share partitions (KIP-932) are for brokers.
"""

from __future__ import annotations

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Operation, ResourceType
from headwater.wire.apis.k10_find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from headwater.wire.restore_names import RESTORE_CLIENT_ID
from headwater.wire.sink_names import TICKETS_KEY, coordinator_key
from headwater_broker.api.admin.forwarding import (
    await_view,
    have_leaders,
    may_on_cluster,
    require_on_cluster,
)
from headwater_broker.api.context import RequestContext
from headwater_broker.api.epoch_requests import may_allocate_tickets
from headwater_broker.api.listener_endpoints import Endpoint, endpoints
from headwater_broker.api.registry import handles
from headwater_broker.coordinator.common.service import Coordinator as CoordinatorPort
from headwater_broker.coordinator.common.service import CoordinatorType
from headwater_broker.coordinator.share_state.service import parse_coordinator_key
from headwater_broker.coordinator.transaction.service import check_storable

KEY_TYPES = frozenset(CoordinatorType)
BATCH_SINCE = 4
RESOURCES = {
    CoordinatorType.GROUP: (ResourceType.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED, "group"),
    CoordinatorType.TRANSACTION: (
        ResourceType.TRANSACTIONAL_ID,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        "transactional id",
    ),
}
"""Key type -> resource whose DESCRIBE is needed, the error without it, the name in messages."""
SHARE_KEYS_SINCE = 6


@handles(FindCoordinatorRequest, FindCoordinatorResponse)
async def find_coordinator(
    ctx: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    """One coordinator or error per key."""
    is_batch = ctx.api_version >= BATCH_SINCE
    keys = request.coordinator_keys if is_batch else (request.key,)
    if any(_may_describe(ctx, request.key_type, key) for key in keys):
        coordinator = _service(ctx, request.key_type)
        if coordinator is not None:
            await create_coordinator_topic(ctx, coordinator)
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


def _service(ctx: RequestContext, key_type: int) -> CoordinatorPort | None:
    return ctx.broker.coordinators.get(CoordinatorType(key_type)) if key_type in KEY_TYPES else None


def _may_describe(ctx: RequestContext, key_type: int, key: str) -> bool:
    if _service(ctx, key_type) is None:
        return False
    if key_type == CoordinatorType.SHARE:
        return may_on_cluster(ctx, Operation.CLUSTER_ACTION)
    resource = RESOURCES[CoordinatorType(key_type)][0]
    if resource is ResourceType.TRANSACTIONAL_ID:
        if key == TICKETS_KEY:
            return may_allocate_tickets(ctx)
        key = coordinator_key(key)
    return ctx.allowed(Operation.DESCRIBE, resource, key)


async def create_coordinator_topic(ctx: RequestContext, coordinator: CoordinatorPort) -> None:
    """Create the internal topic, and wait until its leaders are known.

    Called once for all keys of a request: while it cannot be created, each key would wait in turn.
    The creation is repeated when more brokers are live: there may have been too few for its
    replicas.
    """
    services, topic = ctx.broker, coordinator.topic
    if topic in services.view.topics or not services.view.is_complete:
        return
    wanted = [(topic, services.auto_topics.creatable(topic).num_partitions)]
    tried_with_brokers = 0

    def is_created() -> bool:
        nonlocal tried_with_brokers
        if (live := len(services.view.brokers)) > tried_with_brokers:
            tried_with_brokers = live
            services.auto_topics.create((topic,), str(ctx.principal.name))
        return have_leaders(services, wanted)

    await await_view(services, is_created, services.config.internal_topic_wait_ms)


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
    services, coordinator = ctx.broker, _service(ctx, key_type)
    if (
        key_type == CoordinatorType.GROUP
        and services.config.awaits_restored_groups
        and ctx.client_id != RESTORE_CLIENT_ID
    ):
        raise KafkaError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            "the groups' offsets are not restored yet: `headwater restore` is still to finish",
        )
    if coordinator is None:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"no coordinators of key type {key_type}, only of groups, transactional ids and share "
            "partitions",
        )
    if key_type == CoordinatorType.SHARE:
        _check_share_key(ctx, key)
    else:
        _, code, noun = RESOURCES[CoordinatorType(key_type)]
        if not _may_describe(ctx, key_type, key):
            raise KafkaError(code, f"no DESCRIBE on {noun} {key}")
    if key_type == CoordinatorType.TRANSACTION:
        check_storable(key)
    partition = coordinator.partition_of(key)
    state = services.view.partition(coordinator.topic, partition)
    leader_id = -1 if state is None else state.leader_id
    found = endpoints(services, ctx.listener, (leader_id,))
    if not found:
        raise KafkaError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            f"{coordinator.topic}-{partition} has no live leader now",
        )
    return found[0]


def _check_share_key(ctx: RequestContext, key: str) -> None:
    """Raises CLUSTER_AUTHORIZATION_FAILED, INVALID_REQUEST."""
    require_on_cluster(ctx, Operation.CLUSTER_ACTION)
    if ctx.api_version < SHARE_KEYS_SINCE:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"version {ctx.api_version} knows no share partitions, {SHARE_KEYS_SINCE} does",
        )
    parse_coordinator_key(key)
