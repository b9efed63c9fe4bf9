"""Metadata: brokers, topics and leaders from the metadata cache; creates topics on demand."""

from __future__ import annotations

from uuid import UUID

from headwater.errors import ErrorCode
from headwater.ports.authorizer import Operation, ResourceType
from headwater.security.acl import CLUSTER_NAME
from headwater.topic_names import INTERNAL_TOPICS, KRAFT_TOPIC, is_legal_name
from headwater.wire.apis.k03_metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from headwater.wire.control import PartitionState
from headwater_broker.api.admin.audit_lines import in_lines, write
from headwater_broker.api.authorized_operations import (
    NOT_REQUESTED,
    authorized_operations,
    cluster_operations,
)
from headwater_broker.api.context import RequestContext, Services
from headwater_broker.api.listener_endpoints import endpoints
from headwater_broker.api.registry import handles
from headwater_broker.metadata.cache import TopicMetadata
from headwater_broker.security.audit_entry import AskedChange
from headwater_broker.security.delegation_tokens import principal_text

ZERO = UUID(int=0)
CREATED_AT_ONCE = 100
"""Topics that one request may create; the client's next requests create the others. The
controller's reply holds every config of each topic."""
BY_ID_SINCE = 12
"""The first version with topics by id. Versions 10 and 11 have the field, but Kafka refuses
requests that use it (KIP-516)."""


@handles(MetadataRequest, MetadataResponse)
def metadata(ctx: RequestContext, request: MetadataRequest) -> MetadataResponse:
    """Handle Metadata. Null topics (in version 0 an empty list) stand for all topics; an empty list
    stands for none (KIP-4)."""
    services, version = ctx.broker, ctx.api_version
    to_create: dict[str, None] = {}
    wants_all = request.topics is None or (version == 0 and not request.topics)
    if wants_all:
        with ctx.session.quietly():
            topics = [_known(ctx, request, view) for view in services.view.topics.values()]
        topics = [t for t in topics if t.error_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    elif version < BY_ID_SINCE and any(
        asked.name is None or asked.topic_id != ZERO for asked in request.topics or ()
    ):
        topics = [
            MetadataResponseTopic(
                error_code=ErrorCode.INVALID_REQUEST, name=asked.name or "", topic_id=asked.topic_id
            )
            for asked in request.topics or ()
        ]
    else:
        # One row per topic, however often the request names it: it bounds the reply's size.
        topics = [
            _by_id(ctx, request, asked.topic_id)
            if asked.name is None or asked.topic_id != ZERO
            else _by_name(ctx, request, asked.name, to_create)
            for asked in dict.fromkeys(request.topics or ())
        ]
    if to_create:
        services.auto_topics.create(
            list(to_create)[:CREATED_AT_ONCE],
            str(ctx.principal.name),
            on_created=lambda names: _audit(ctx, names),
        )
    on_cluster = NOT_REQUESTED
    if request.include_cluster_authorized_operations and 8 <= version <= 10:
        on_cluster = cluster_operations(ctx)
    return MetadataResponse(
        brokers=tuple(
            MetadataResponseBroker(node_id=e.node_id, host=e.host, port=e.port, rack=e.rack)
            for e in endpoints(services, ctx.listener, services.view.brokers)
        ),
        cluster_id=services.cluster_id,
        controller_id=services.view.controller_id,
        topics=tuple(topics),
        cluster_authorized_operations=on_cluster,
    )


def _by_id(ctx: RequestContext, request: MetadataRequest, topic_id: UUID) -> MetadataResponseTopic:
    view = ctx.broker.view.topic_by_id.get(topic_id)
    if view is None:
        return MetadataResponseTopic(
            error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id
        )
    found = _known(ctx, request, view)
    if found.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return MetadataResponseTopic(  # an id must not reveal a topic's name
            error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id
        )
    return found


def _by_name(
    ctx: RequestContext, request: MetadataRequest, name: str, to_create: dict[str, None]
) -> MetadataResponseTopic:
    services = ctx.broker
    view = services.view.topics.get(name)
    if view is not None:
        return _known(ctx, request, view)
    if not ctx.allowed(Operation.DESCRIBE, ResourceType.TOPIC, name):
        return _denied(name)
    code = _missing(ctx, request, name, to_create)
    # Without the right to create it Kafka's row has no operations.
    is_denied = code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return MetadataResponseTopic(
        error_code=code,
        name=name,
        is_internal=name in INTERNAL_TOPICS,
        topic_authorized_operations=NOT_REQUESTED if is_denied else _operations(ctx, request, name),
    )


def _operations(ctx: RequestContext, request: MetadataRequest, name: str) -> int:
    if request.include_topic_authorized_operations:
        return authorized_operations(ctx, ResourceType.TOPIC, name)
    return NOT_REQUESTED


def _denied(name: str) -> MetadataResponseTopic:
    """The same row for a topic that exists and for one that does not."""
    return MetadataResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name)


def _missing(
    ctx: RequestContext, request: MetadataRequest, name: str, to_create: dict[str, None]
) -> ErrorCode:
    if not is_legal_name(name):
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    config = ctx.broker.config
    wanted = request.allow_auto_topic_creation or ctx.api_version < 4
    may_be_made = name in INTERNAL_TOPICS or (config.auto_create_topics and name != KRAFT_TOPIC)
    if not (wanted and may_be_made):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if not ctx.broker.view.is_complete:
        return ErrorCode.LEADER_NOT_AVAILABLE  # the topic may exist: the cache is not loaded yet
    may_create = ctx.allowed(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME)
    if not may_create and not ctx.allowed(Operation.CREATE, ResourceType.TOPIC, name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    refused = ctx.broker.auto_topics.failure(name)
    if refused is not None:
        return refused
    to_create[name] = None
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION  # clients retry on it, as on Kafka's


def _audit(ctx: RequestContext, names: list[str]) -> None:
    texts = [f"topic {name}, on demand" for name in names]
    who = principal_text(ctx.principal.kind, ctx.principal.name)
    head = AskedChange(who, ctx.client_host, "Metadata", ErrorCode.NONE.name, "")
    for change in in_lines(head, texts):
        write(ctx.broker, change)


def _known(
    ctx: RequestContext, request: MetadataRequest, view: TopicMetadata
) -> MetadataResponseTopic:
    name, version = view.name, ctx.api_version
    if not ctx.allowed(Operation.DESCRIBE, ResourceType.TOPIC, name):
        return _denied(name)
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=name,
        topic_id=view.topic_id,
        is_internal=name in INTERNAL_TOPICS,
        partitions=tuple(
            partition_row(ctx.broker, ctx.listener, view.partitions[index], version)
            for index in sorted(view.partitions)
        ),
        topic_authorized_operations=_operations(ctx, request, name),
    )


def client_isr(state: PartitionState) -> tuple[int, ...]:
    """The ISR as clients see it: empty for a partition without a leader (KIP-966).

    The controller keeps the last ISR of an offline partition, so that one of its members can lead
    again. All of them are offline, and Kafka takes offline replicas out of the ISR: its tools list
    the partition as under-replicated.
    """
    return state.isr if state.leader_id >= 0 else ()


def partition_row(
    services: Services, listener: str, state: PartitionState, version: int
) -> MetadataResponsePartition:
    """One partition as clients see it. A dead leader counts as no leader."""
    live = services.view.brokers
    offline = tuple(r for r in state.replicas if r not in live or r in state.offline_replicas)
    leader_id, code = state.leader_id, ErrorCode.NONE
    replicas, isr = state.replicas, client_isr(state)
    if leader_id not in live:
        leader_id, code = -1, ErrorCode.LEADER_NOT_AVAILABLE
    elif not endpoints(services, listener, (leader_id,)):
        leader_id = -1
        code = ErrorCode.LISTENER_NOT_FOUND if version >= 6 else ErrorCode.LEADER_NOT_AVAILABLE
    elif version == 0 and offline:  # version 0 leaves out dead replicas, with this error
        code = ErrorCode.REPLICA_NOT_AVAILABLE
        replicas = tuple(r for r in replicas if r not in offline)
        isr = tuple(r for r in isr if r not in offline)
    return MetadataResponsePartition(
        error_code=code,
        partition_index=state.partition,
        leader_id=leader_id,
        leader_epoch=state.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=isr,
        offline_replicas=offline,
    )
