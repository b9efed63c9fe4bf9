"""AlterConfigs and IncrementalAlterConfigs: rights are checked here, the rest by the controller."""

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
from headwater_broker.api.admin.table_place import refused_place
from headwater_broker.api.context import RequestContext

Req = TypeVar("Req", k33.AlterConfigsRequest, k44.IncrementalAlterConfigsRequest)
Row = TypeVar("Row")


async def alter(
    ctx: RequestContext,
    request: Req,
    reply: type[k33.AlterConfigsResponse] | type[k44.IncrementalAlterConfigsResponse],
    row: Callable[..., Row],
) -> tuple[Row, ...]:
    """One row per resource, in the order of the request; `row` is its class."""
    found: dict[tuple[int, str], Any] = {}
    allowed: list[Any] = []
    times = Counter((r.resource_type, r.resource_name) for r in request.resources)
    for resource in request.resources:
        key = (resource.resource_type, resource.resource_name)
        refused = refusal(ctx, *key, Operation.ALTER_CONFIGS)
        refused = refused or _illegal_topic(ctx, *key) or _duplicate(resource, times[key])
        if refused is None and resource.resource_type == TOPIC_RESOURCE:
            values = ((c.name, c.value) for c in resource.configs)
            refused = refused_place(ctx, resource.resource_name, values)
        if refused is None and resource.resource_type == BROKER_LOGGER_RESOURCE:
            refused = _alter_loggers(ctx, request, resource)
            found[key] = _answer(row, resource, *(refused or (ErrorCode.NONE, None)))
        elif refused is None:
            allowed.append(resource)
        else:
            found[key] = _answer(row, resource, *refused)
    if allowed:
        try:
            part = replace(request, resources=tuple(allowed))
            answer = await forward(ctx, part, reply, FORWARD_TIMEOUT_MIN_MS)
            found.update(((r.resource_type, r.resource_name), r) for r in answer.responses)
        except KafkaError as e:
            for resource in allowed:
                key = (resource.resource_type, resource.resource_name)
                found[key] = _answer(row, resource, e.code, e.detail)
    return tuple(found[r.resource_type, r.resource_name] for r in request.resources)


def _alter_loggers(ctx: RequestContext, request: Any, resource: Any) -> Refusal | None:
    if not isinstance(request, k44.IncrementalAlterConfigsRequest):
        text = "levels of loggers are changed by IncrementalAlterConfigs only"
        return ErrorCode.INVALID_REQUEST, text
    return alter_loggers(ctx, resource, validate_only=request.validate_only)


def _illegal_topic(ctx: RequestContext, kind: int, name: str) -> Refusal | None:
    """The refusal of a name that no topic can have."""
    if kind != TOPIC_RESOURCE or name in ctx.broker.view.topics or is_legal_name(name):
        return None
    if not name:
        text = "the topic name is empty: only brokers have configs that apply to all"
        return ErrorCode.INVALID_REQUEST, text
    return ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name!r} cannot be the name of a topic"


def _duplicate(resource: Any, times: int) -> Refusal | None:
    """The refusal of two changes to the same config: their order is not defined."""
    if times > 1:
        return ErrorCode.INVALID_REQUEST, "the resource occurs more than once in the request"
    names = Counter(c.name for c in resource.configs)
    if doubled := sorted(name for name, count in names.items() if count > 1):
        return ErrorCode.INVALID_REQUEST, f"keys that occur more than once: {', '.join(doubled)}"
    return None


def _answer(row: Callable[..., Row], resource: Any, code: int, text: str | None) -> Row:
    return row(
        error_code=code,
        error_message=text,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
