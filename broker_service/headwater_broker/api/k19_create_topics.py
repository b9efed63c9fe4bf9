"""CreateTopics: forwarded to the controller; answered when the leaders are visible here.

Version 5 and later return the configs (KIP-525); version 7 the topic id (KIP-516).
"""

from __future__ import annotations

from dataclasses import replace

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Operation
from headwater.wire.apis.k19_create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from headwater_broker.api.forwarding import (
    await_view,
    forward,
    have_leaders,
    may_on_cluster,
    may_on_topic,
)
from headwater_broker.api.registry import handles
from headwater_broker.api.services import RequestContext


@handles(CreateTopicsRequest, CreateTopicsResponse)
async def create_topics(ctx: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
    """Topics without a right are refused here; the others are the controller's business."""
    anywhere = may_on_cluster(ctx, Operation.CREATE)
    allowed = tuple(
        t for t in request.topics if anywhere or may_on_topic(ctx, Operation.CREATE, t.name)
    )
    began = ctx.broker.clock.monotonic()
    found: dict[str, CreatableTopicResult] = {}
    if allowed:
        asked = replace(request, topics=allowed)
        try:
            reply = await forward(ctx, asked, CreateTopicsResponse, request.timeout_ms)
            found = {t.name: t for t in reply.topics}
        except KafkaError as e:
            found = {t.name: _failed(t.name, e.code, e.detail) for t in allowed}
    if not request.validate_only:
        spent_ms = int((ctx.broker.clock.monotonic() - began) * 1000)
        await _visible(ctx, found, request.timeout_ms - spent_ms)
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return CreateTopicsResponse(
        topics=tuple(
            found.get(t.name) or _failed(t.name, denied, "no CREATE on this topic")
            for t in request.topics
        )
    )


async def _visible(
    ctx: RequestContext, found: dict[str, CreatableTopicResult], timeout_ms: int
) -> None:
    """Clients ask this broker for metadata next: it shall know the new leaders by then."""
    made = [r for r in found.values() if r.error_code == ErrorCode.NONE]
    wanted = [(r.name, max(r.num_partitions, 1)) for r in made]
    services = ctx.broker
    if await await_view(services, lambda: have_leaders(services, wanted), timeout_ms):
        return
    for result in made:
        if not have_leaders(services, [(result.name, max(result.num_partitions, 1))]):
            text = "the topic is made; its leaders were not elected in time"
            found[result.name] = _failed(result.name, ErrorCode.REQUEST_TIMED_OUT, text)


def _failed(name: str, code: int, text: str | None) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=code, error_message=text, configs=None)
