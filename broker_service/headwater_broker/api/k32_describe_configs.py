"""DescribeConfigs: configs of a topic, a group, this broker or its loggers, with their source.

Answered from this broker's metadata and settings. Sources and synonyms are KIP-226's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from headwater.config.keys import BROKER_KEYS, GROUP_KEYS, ConfigKey, Kind
from headwater.config.layers import Given, Source
from headwater.errors import ErrorCode
from headwater.ports.authorizer import Operation
from headwater.topic_names import is_legal_name
from headwater.wire.apis.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from headwater_broker.api.admin.broker_loggers import describe_loggers, not_this_broker
from headwater_broker.api.admin.config_authorization import (
    BROKER_LOGGER_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    refusal,
)
from headwater_broker.api.context import RequestContext
from headwater_broker.api.registry import handles

CONFIG_TYPES = {
    Kind.BOOLEAN: 1,
    Kind.STRING: 2,
    Kind.INT: 3,
    Kind.LONG: 5,
    Kind.DOUBLE: 6,
    Kind.LIST: 7,
}


@handles(DescribeConfigsRequest, DescribeConfigsResponse)
def describe_configs(
    ctx: RequestContext, request: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    """One result per resource, without sensitive values. A null or empty list of keys means all of
    them, as in Kafka.
    """
    rows = tuple(_describe(ctx, request, resource) for resource in request.resources)
    return DescribeConfigsResponse(results=rows)


def _describe(
    ctx: RequestContext, request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> DescribeConfigsResult:
    kind, name = resource.resource_type, resource.resource_name
    refused = refusal(ctx, kind, name, Operation.DESCRIBE_CONFIGS)
    if refused is not None:
        return _failed(resource, *refused)
    rows: Iterable[DescribeConfigsResourceResult]
    if kind == BROKER_LOGGER_RESOURCE:
        if elsewhere := not_this_broker(ctx, name):
            return _failed(resource, *elsewhere)
        rows = describe_loggers(ctx, resource)
    elif kind == TOPIC_RESOURCE:
        view = ctx.broker.view.topics.get(name)
        if view is None and not is_legal_name(name):
            text = f"{name!r} cannot be the name of a topic"
            return _failed(resource, ErrorCode.INVALID_TOPIC_EXCEPTION, text)
        if view is None:
            return _failed(resource, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no topic {name!r}")
        rows = _topic_rows(ctx, request, view.configs)
    elif kind == GROUP_RESOURCE:
        rows = _group_rows(ctx, request, ctx.broker.view.group_configs.get(name, {}))
    elif not name or (name.isascii() and name.isdigit() and int(name) == ctx.broker.broker_id):
        rows = _broker_rows(ctx, request, is_default=not name)
    else:
        text = f"this is broker {ctx.broker.broker_id}: send the request to broker {name!r}"
        return _failed(resource, ErrorCode.INVALID_REQUEST, text)
    wanted = resource.configuration_keys
    return DescribeConfigsResult(
        error_code=ErrorCode.NONE,
        error_message=None,
        resource_type=kind,
        resource_name=name,
        configs=tuple(row for row in rows if not wanted or row.name in wanted),
    )


def _topic_rows(
    ctx: RequestContext, request: DescribeConfigsRequest, overrides: Mapping[str, str]
) -> Iterator[DescribeConfigsResourceResult]:
    for key, value, _, given in ctx.broker.config.settings.topic_rows(overrides):
        yield _row(request, key, value, given, read_only=False)


def _group_rows(
    ctx: RequestContext, request: DescribeConfigsRequest, overrides: Mapping[str, str]
) -> Iterator[DescribeConfigsResourceResult]:
    """Also of a group that does not exist, as in Kafka."""
    for _, key in sorted(GROUP_KEYS.items()):
        given = ctx.broker.config.settings.of_group(key, overrides)
        yield _row(request, key, given[0].value, given, read_only=False)


def _broker_rows(
    ctx: RequestContext, request: DescribeConfigsRequest, *, is_default: bool
) -> Iterator[DescribeConfigsResourceResult]:
    """The empty broker name means the configs that were set for all brokers."""
    settings = ctx.broker.config.settings
    for name, key in sorted(BROKER_KEYS.items()):
        given = settings.of_broker(key)
        if is_default:
            given = [row for row in given if row.source is Source.CLUSTER_WIDE]
        else:
            given = [row for row in given if row.name == name]
        if given:
            yield _row(request, key, given[0].value, given, read_only=not key.is_dynamic)


def _row(
    request: DescribeConfigsRequest,
    key: ConfigKey,
    value: str,
    given: Sequence[Given],
    *,
    read_only: bool,
) -> DescribeConfigsResourceResult:
    hidden = key.is_sensitive
    source = given[0].source
    is_unset = source is Source.DEFAULT and key.default is None
    rows = tuple(
        DescribeConfigsSynonym(name=n, value=None if hidden else v, source=s) for n, v, s in given
    )
    return DescribeConfigsResourceResult(
        name=key.name,
        value=None if hidden or is_unset else value,
        read_only=read_only,
        config_source=source,
        is_sensitive=hidden,
        synonyms=rows if request.include_synonyms else (),
        config_type=CONFIG_TYPES[key.kind],
        documentation=key.doc if request.include_documentation else None,
    )


def _failed(resource: DescribeConfigsResource, code: ErrorCode, text: str) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=code,
        error_message=text,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
