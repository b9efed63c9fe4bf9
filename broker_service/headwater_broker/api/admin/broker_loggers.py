"""The BROKER_LOGGER resource: levels of this broker's loggers (KIP-412).

`kafka-configs.sh --entity-type broker-loggers` sends it to the broker it names, which answers it
itself: levels belong to the process, the controller does not know them.
"""

from __future__ import annotations

from headwater.errors import ErrorCode, UsageError
from headwater.wire.apis.k32_describe_configs import (
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
)
from headwater.wire.apis.k44_incremental_alter_configs import AlterableConfig, AlterConfigsResource
from headwater_broker.api.admin.config_authorization import Refusal
from headwater_broker.api.context import RequestContext
from headwater_broker.runtime.broker_loggers import BrokerLoggers

DYNAMIC_BROKER_LOGGER_CONFIG = 6
"""Config source of a level in DescribeConfigs."""
SET, DELETE = 0, 1
"""Config operations. APPEND and SUBTRACT are refused: a level is not a list."""


def not_this_broker(ctx: RequestContext, name: str) -> Refusal | None:
    """The refusal of a request about the loggers of another broker; None for this one."""
    if name == str(ctx.broker.broker_id):
        return None
    text = f"this is broker {ctx.broker.broker_id}: ask broker {name!r} for its loggers"
    return ErrorCode.INVALID_REQUEST, text


def describe_loggers(
    ctx: RequestContext, resource: DescribeConfigsResource
) -> tuple[DescribeConfigsResourceResult, ...]:
    """The requested loggers, each with its effective level."""
    wanted = resource.configuration_keys
    return tuple(
        DescribeConfigsResourceResult(
            name=name, value=level, config_source=DYNAMIC_BROKER_LOGGER_CONFIG
        )
        for name, level in ctx.broker.loggers.levels().items()
        if not wanted or name in wanted
    )


def alter_loggers(
    ctx: RequestContext, resource: AlterConfigsResource, *, validate_only: bool
) -> Refusal | None:
    """Change all levels of the resource, or none and return the refusal."""
    if refused := not_this_broker(ctx, resource.resource_name):
        return refused
    loggers = ctx.broker.loggers
    for config in resource.configs:
        if refused := _refusal(loggers, config):
            return refused
    if not validate_only:
        for config in resource.configs:
            if config.config_operation == SET:
                loggers.set_level(config.name, config.value or "")
            else:
                loggers.reset_level(config.name)
    return None


def _refusal(loggers: BrokerLoggers, config: AlterableConfig) -> Refusal | None:
    try:
        if config.config_operation == SET:
            loggers.check(config.name, config.value or "")
        elif config.config_operation == DELETE:
            loggers.check_reset(config.name)
        else:
            text = f"logger {config.name}: a level can be set or deleted, nothing else"
            return ErrorCode.INVALID_REQUEST, text
    except UsageError as error:
        return ErrorCode.INVALID_CONFIG, str(error)
    return None
