"""CreateTopics: forwarded to the controller; answered when this broker knows the leaders.

From version 5 on the response has the configs (KIP-525), from version 7 on the topic id (KIP-516).
"""

from __future__ import annotations

from dataclasses import replace

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Operation
from headwater.wire.apis.k19_create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from headwater_broker.api.admin.forwarding import (
    forward_in_time,
    may_on_cluster,
    may_on_topic,
    ms_left,
    topics_without_leaders,
)
from headwater_broker.api.admin.mutation_quota import EXCEEDED, mutation_quota
from headwater_broker.api.admin.table_place import refused_place
from headwater_broker.api.context import RequestContext
from headwater_broker.api.registry import handles


@handles(CreateTopicsRequest, CreateTopicsResponse)
async def create_topics(ctx: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
    """One row per name, also for a name that occurs more than once, which is refused."""
    may_create_all = may_on_cluster(ctx, Operation.CREATE)
    allowed = tuple(
        t for t in request.topics if may_create_all or may_on_topic(ctx, Operation.CREATE, t.name)
    )
    misplaced: dict[str, CreatableTopicResult] = {}
    for topic in allowed:
        refused = refused_place(ctx, topic.name, ((c.name, c.value) for c in topic.configs))
        if refused is not None:
            misplaced[topic.name] = _failed(topic.name, *refused)
    allowed = tuple(t for t in allowed if t.name not in misplaced)
    began = ctx.broker.clock.monotonic()
    quota = mutation_quota(ctx, CreateTopicsRequest.api_key)
    charged = {t.name: _partitions(ctx, t) for t in allowed if quota.allows(_partitions(ctx, t))}
    exceeded = ErrorCode.THROTTLING_QUOTA_EXCEEDED
    throttled = [t.name for t in allowed if t.name not in charged]
    allowed = tuple(t for t in allowed if t.name in charged)
    found: dict[str, CreatableTopicResult] = {}
    if allowed:
        part = replace(request, topics=allowed)
        try:
            reply = await forward_in_time(ctx, part, CreateTopicsResponse, request.timeout_ms)
            found = {t.name: t for t in reply.topics}
        except KafkaError as e:
            found = {t.name: _failed(t.name, e.code, e.detail) for t in allowed}
    for name, row in found.items():
        if row.error_code:
            quota.give_back(charged[name])
    found.update((name, _failed(name, exceeded, EXCEEDED)) for name in throttled)
    found.update(misplaced)
    if not request.validate_only:
        made = [r for r in found.values() if r.error_code == ErrorCode.NONE]
        wanted = {r.name: max(r.num_partitions, 1) for r in made}
        left_ms = ms_left(ctx.broker, began, request.timeout_ms)
        for name in await topics_without_leaders(ctx.broker, wanted, left_ms):
            text = "the topic was created, but its leaders were not elected in time"
            found[name] = _failed(name, ErrorCode.REQUEST_TIMED_OUT, text)
    for name, row in found.items():
        if not row.error_code and not may_on_topic(ctx, Operation.DESCRIBE_CONFIGS, name):
            found[name] = _without_configs(row)
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return CreateTopicsResponse(
        throttle_time_ms=quota.throttle_ms,
        topics=tuple(
            found.get(name) or _failed(name, denied, "no CREATE on this topic")
            for name in dict.fromkeys(t.name for t in request.topics)
        ),
    )


def _partitions(ctx: RequestContext, topic: CreatableTopic) -> int:
    if topic.assignments:
        return len(topic.assignments)
    wanted = topic.num_partitions
    return wanted if wanted > 0 else ctx.broker.config.num_partitions


def _without_configs(row: CreatableTopicResult) -> CreatableTopicResult:
    """Leave out fields that need DESCRIBE_CONFIGS; the topic is created all the same (KIP-525)."""
    return CreatableTopicResult(
        name=row.name,
        topic_id=row.topic_id,
        error_message=row.error_message,
        topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        configs=(),
    )


def _failed(name: str, code: int, text: str | None) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=code, error_message=text)
