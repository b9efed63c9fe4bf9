"""JoinEpoch: a task becomes a participant of an epoch transaction (docs/epochs.md)."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Operation
from headwater.topic_names import INTERNAL_TOPICS
from headwater.wire.apis.k10001_join_epoch import (
    JoinEpochRequest,
    JoinEpochResponse,
    JoinEpochTopic,
)
from headwater.wire.epoch_values import EpochStatus
from headwater.wire.sink_names import sink_and_slot
from headwater_broker.api.admin.forwarding import may_on_topic
from headwater_broker.api.context import RequestContext
from headwater_broker.api.epoch_requests import epoch_request
from headwater_broker.api.registry import handles
from headwater_broker.coordinator.transaction.epoch_values import JoinRequest
from headwater_broker.coordinator.transaction.transaction import ClientIdentity, Partition

UNUSED = -1


@handles(JoinEpochRequest, JoinEpochResponse)
async def join_epoch(ctx: RequestContext, request: JoinEpochRequest) -> JoinEpochResponse:
    """The participant is durable before the reply."""
    try:
        reply = await ctx.broker.sinks.join_epoch(
            JoinRequest(
                of=epoch_request(ctx, request, request.kind),
                task=request.task,
                attempt=request.attempt,
                partitions=_partitions(ctx, request.topics),
                client=ClientIdentity(
                    f"{ctx.principal.kind}:{ctx.principal.name}",
                    ctx.client_id or "",
                    ctx.client_host,
                ),
                fresh_producer_id=UNUSED,
            )
        )
    except KafkaError as error:
        return JoinEpochResponse(
            error_code=error.code,
            error_message=error.detail or None,
            status=EpochStatus.ABORTED,
        )
    joined = reply.participant
    if joined is None:
        return JoinEpochResponse(status=reply.status, last_epoch=reply.last_epoch)
    return JoinEpochResponse(
        status=reply.status,
        last_epoch=reply.last_epoch,
        transactional_id=joined.transactional_id,
        slot=sink_and_slot(joined.transactional_id)[1],
        producer_id=joined.producer_id,
        producer_epoch=joined.producer_epoch,
        heartbeat_interval_ms=ctx.broker.sinks.heartbeat_interval_ms,
    )


def _partitions(
    ctx: RequestContext, topics: tuple[JoinEpochTopic, ...]
) -> Mapping[Partition, UUID]:
    """The partitions with their topics' ids. Raises TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION: rights first."""
    for topic in topics:
        if topic.name in INTERNAL_TOPICS or not may_on_topic(ctx, Operation.WRITE, topic.name):
            raise KafkaError(
                ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"no WRITE on topic {topic.name}"
            )
    found: dict[Partition, UUID] = {}
    for topic in topics:
        known = ctx.broker.view.topics.get(topic.name)
        for index in topic.partitions:
            if known is None or index not in known.partitions:
                raise KafkaError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic.name}-{index} is not known"
                )
            found[topic.name, index] = known.topic_id
    return found
