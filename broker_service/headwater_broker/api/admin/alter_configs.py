"""AlterConfigs in both its forms: rights here, the rest at the controller."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Operation
from headwater.topic_names import is_legal_name
from headwater.wire.apis import k33_alter_configs as k33
from headwater.wire.apis import k44_incremental_alter_configs as k44
from headwater_broker.api.admin.broker_loggers import alter_loggers
from headwater_broker.api.admin.config_authorization import (
    BROKER_LOGGER_RESOURCE,
    TOPIC_RESOURCE,
    Refusal,
    refusal,
)
from headwater_broker.api.admin.forwarding import FORWARD_TIMEOUT_MIN_MS, forward
from headwater_broker.api.context import RequestContext

Req = TypeVar("Req", k33.AlterConfigsRequest, k44.IncrementalAlterConfigsRequest)
Row = TypeVar("Row")


async def alter(
    ctx: RequestContext,
    request: Req,
    reply: type[k33.AlterConfigsResponse] | type[k44.IncrementalAlterConfigsResponse],
    row: Callable[..., Row],
) -> tuple[Row, ...]:
    """One row per resource, in the order asked; `row` makes it from its fields."""
    found: dict[tuple[int, str], Any] = {}
    allowed: list[Any] = []
    times = Counter((r.resource_type, r.resource_name) for r in request.resources)
    for asked in request.resources:
        key = (asked.resource_type, asked.resource_name)
        refused = refusal(ctx, *key, Operation.ALTER_CONFIGS)
        refused = refused or _no_topic(ctx, *key) or _twice(asked, times[key])
        if refused is None and asked.resource_type == BROKER_LOGGER_RESOURCE:
            refused = _alter_loggers(ctx, request, asked)
            found[key] = _answer(row, asked, *(refused or (ErrorCode.NONE, None)))
        elif refused is None:
            allowed.append(asked)
        else:
            found[key] = _answer(row, asked, *refused)
    if allowed:
        try:
            part = replace(request, resources=tuple(allowed))
            answer = await forward(ctx, part, reply, FORWARD_TIMEOUT_MIN_MS)
            found.update(((r.resource_type, r.resource_name), r) for r in answer.responses)
        except KafkaError as e:
            for asked in allowed:
                key = (asked.resource_type, asked.resource_name)
                found[key] = _answer(row, asked, e.code, e.detail)
    return tuple(found[r.resource_type, r.resource_name] for r in request.resources)


def _alter_loggers(ctx: RequestContext, request: Any, asked: Any) -> Refusal | None:
    if not isinstance(request, k44.IncrementalAlterConfigsRequest):
        text = "levels of loggers are changed one by one, by IncrementalAlterConfigs"
        return ErrorCode.INVALID_REQUEST, text
    return alter_loggers(ctx, asked, validate_only=request.validate_only)


def _no_topic(ctx: RequestContext, kind: int, name: str) -> Refusal | None:
    """Why no topic can have this name."""
    if kind != TOPIC_RESOURCE or name in ctx.broker.view.topics or is_legal_name(name):
        return None
    if not name:
        text = "the topic's name is empty: only brokers have configs for all of them"
        return ErrorCode.INVALID_REQUEST, text
    return ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name!r} cannot be the name of a topic"


def _twice(asked: Any, times: int) -> Refusal | None:
    """Which of two changes would count?"""
    if times > 1:
        return ErrorCode.INVALID_REQUEST, "the resource stands in the request more than once"
    names = Counter(c.name for c in asked.configs)
    if doubled := sorted(name for name, count in names.items() if count > 1):
        return ErrorCode.INVALID_REQUEST, f"keys that stand more than once: {', '.join(doubled)}"
    return None


def _answer(row: Callable[..., Row], asked: Any, code: int, text: str | None) -> Row:
    return row(
        error_code=code,
        error_message=text,
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
    )
