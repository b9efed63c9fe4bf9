"""DeleteTopics: by name, or from version 6 on by id (KIP-516); answered when this broker's metadata
no longer has them.

The name can be used again at once. Replicas on brokers that are down are deleted when these return.
"""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Operation
from headwater.wire.apis.k20_delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from headwater_broker.api.admin.forwarding import (
    await_view,
    forward_in_time,
    may_on_cluster,
    may_on_topic,
    ms_left,
)
from headwater_broker.api.admin.mutation_quota import EXCEEDED, mutation_quota
from headwater_broker.api.context import RequestContext
from headwater_broker.api.registry import handles

ZERO = UUID(int=0)
DISABLED_CODE_SINCE = 3


@handles(DeleteTopicsRequest, DeleteTopicsResponse)
async def delete_topics(ctx: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    """Rows in the order of the request; one for a topic that occurs more than once, which is
    refused."""
    rows = request.topics or tuple(DeleteTopicState(name=n) for n in request.topic_names)
    quota = mutation_quota(ctx, DeleteTopicsRequest.api_key)
    refused: dict[DeleteTopicState, DeletableTopicResult | None] = {}
    for row in dict.fromkeys(rows):
        refused[row] = _refusal(ctx, row)
        if refused[row] is None and not quota.allows(_partitions(ctx, row)):
            refused[row] = _failed(row, ErrorCode.THROTTLING_QUOTA_EXCEEDED, EXCEEDED)
    allowed = tuple(row for row in rows if refused[row] is None)
    found: dict[DeleteTopicState, DeletableTopicResult] = {}
    if allowed:
        view, began = ctx.broker.view, ctx.broker.clock.monotonic()
        # Responses before version 6 have no ids, and a new topic may have the name by then.
        known = {name: topic.topic_id for name, topic in view.topics.items()}
        found = await _forwarded(ctx, request, allowed)
        done = [r for r in found.values() if r.error_code == ErrorCode.NONE]
        gone = {r.topic_id if r.topic_id != ZERO else known.get(r.name or "") for r in done}
        left_ms = ms_left(ctx.broker, began, request.timeout_ms)
        await await_view(ctx.broker, lambda: not (gone & view.topic_by_id.keys()), left_ms)
    responses = dict.fromkeys(refused[r] or found[r] for r in rows)
    return DeleteTopicsResponse(throttle_time_ms=quota.throttle_ms, responses=tuple(responses))


def _partitions(ctx: RequestContext, row: DeleteTopicState) -> int:
    view = ctx.broker.view
    known = view.topic_by_id.get(row.topic_id) if row.name is None else view.topics.get(row.name)
    return 0 if known is None else len(known.partitions)


def _refusal(ctx: RequestContext, row: DeleteTopicState) -> DeletableTopicResult | None:
    name = row.name
    if name is not None and row.topic_id != ZERO:
        text = "name and id are both set"
        return _failed(row, ErrorCode.INVALID_REQUEST, text)
    if name is None:
        view = ctx.broker.view.topic_by_id.get(row.topic_id)
        if view is None:
            return None
        name = view.name
    if may_on_cluster(ctx, Operation.DELETE) or may_on_topic(ctx, Operation.DELETE, name):
        return None
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if row.name is None and not may_on_topic(ctx, Operation.DESCRIBE, name):
        return _failed(row, denied, None)  # Kafka: the name is secret, the id is not
    is_missing = name not in ctx.broker.view.topics
    if is_missing and may_on_topic(ctx, Operation.DESCRIBE, name):
        return _failed(row, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no topic {name!r}")
    return _failed(replace(row, name=name), denied, f"no DELETE on {name}")


async def _forwarded(
    ctx: RequestContext, request: DeleteTopicsRequest, allowed: tuple[DeleteTopicState, ...]
) -> dict[DeleteTopicState, DeletableTopicResult]:
    by_name = bool(request.topic_names) and not request.topics
    part = (
        replace(request, topic_names=tuple(r.name or "" for r in allowed))
        if by_name
        else replace(request, topics=allowed)
    )
    try:
        reply = await forward_in_time(ctx, part, DeleteTopicsResponse, request.timeout_ms)
    except KafkaError as e:
        return {row: _failed(row, e.code, e.detail) for row in allowed}
    rows = [_known_code(ctx, r) for r in reply.responses]
    return dict(zip(allowed, rows, strict=True))


def _known_code(ctx: RequestContext, row: DeletableTopicResult) -> DeletableTopicResult:
    """The oldest versions do not have TOPIC_DELETION_DISABLED."""
    disabled = row.error_code == ErrorCode.TOPIC_DELETION_DISABLED
    if disabled and ctx.api_version < DISABLED_CODE_SINCE:
        return replace(row, error_code=ErrorCode.INVALID_REQUEST)
    return row


def _failed(row: DeleteTopicState, code: ErrorCode, text: str | None) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=row.name, topic_id=row.topic_id, error_code=code, error_message=text
    )
