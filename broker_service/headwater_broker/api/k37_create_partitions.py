"""CreatePartitions: adds partitions to topics (KIP-195); records stay in their partitions."""

from __future__ import annotations

from dataclasses import replace

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Operation
from headwater.topic_names import INTERNAL_TOPICS
from headwater.wire.apis.k37_create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from headwater_broker.api.admin.forwarding import (
    forward_in_time,
    may_on_topic,
    ms_left,
    topics_without_leaders,
)
from headwater_broker.api.admin.mutation_quota import EXCEEDED, mutation_quota
from headwater_broker.api.context import RequestContext
from headwater_broker.api.registry import handles


@handles(CreatePartitionsRequest, CreatePartitionsResponse)
async def create_partitions(
    ctx: RequestContext, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    """Answered when this broker knows the new leaders."""
    found = {t.name: r for t in request.topics if (r := _refusal(ctx, t.name)) is not None}
    quota = mutation_quota(ctx, CreatePartitionsRequest.api_key)
    charged: dict[str, int] = {}
    for topic in request.topics:
        if topic.name in found:
            continue
        added = _added(ctx, topic)
        if quota.allows(added):
            charged[topic.name] = added
        else:
            exceeded = ErrorCode.THROTTLING_QUOTA_EXCEEDED
            found[topic.name] = _failed(topic.name, exceeded, EXCEEDED)
    allowed = tuple(t for t in request.topics if t.name not in found)
    began = ctx.broker.clock.monotonic()
    if allowed:
        part = replace(request, topics=allowed)
        try:
            reply = await forward_in_time(ctx, part, CreatePartitionsResponse, request.timeout_ms)
            found.update((r.name, r) for r in reply.results)
        except KafkaError as e:
            found.update((t.name, _failed(t.name, e.code, e.detail)) for t in allowed)
    for name, added in charged.items():
        if found[name].error_code:
            quota.give_back(added)
    if not request.validate_only:
        grown = {t.name: t.count for t in allowed if found[t.name].error_code == ErrorCode.NONE}
        left_ms = ms_left(ctx.broker, began, request.timeout_ms)
        for name in await topics_without_leaders(ctx.broker, grown, left_ms):
            text = "the partitions were created, but their leaders were not elected in time"
            found[name] = _failed(name, ErrorCode.REQUEST_TIMED_OUT, text)
    # A name that occurs more than once is refused with one row.
    names = dict.fromkeys(t.name for t in request.topics)
    return CreatePartitionsResponse(
        throttle_time_ms=quota.throttle_ms, results=tuple(found[name] for name in names)
    )


def _added(ctx: RequestContext, topic: CreatePartitionsTopic) -> int:
    known = ctx.broker.view.topics.get(topic.name)
    return 0 if known is None else max(topic.count - len(known.partitions), 0)


def _refusal(ctx: RequestContext, topic: str) -> CreatePartitionsTopicResult | None:
    if not may_on_topic(ctx, Operation.ALTER, topic):
        return _failed(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"no ALTER on {topic}")
    if topic in INTERNAL_TOPICS:
        # Keys are mapped by their hash and the number of partitions: they would be lost.
        text = f"the number of partitions of {topic} cannot be changed"
        return _failed(topic, ErrorCode.INVALID_REQUEST, text)
    return None


def _failed(name: str, code: ErrorCode, text: str | None) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(name=name, error_code=code, error_message=text)
