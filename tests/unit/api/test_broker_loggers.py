"""Levels of a broker's loggers over the wire: the BROKER_LOGGER resource (KIP-412)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.client.connection import Connection
from headwater.errors import ErrorCode
from headwater.ports.authorizer import Operation, ResourceType
from headwater.wire.apis import k33_alter_configs as k33
from headwater.wire.apis.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from headwater.wire.apis.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from solo_broker import SoloBroker
from unit.api.test_describing import Denies
from unit.network.test_data_plane import serve

BROKER_LOGGER = 8
SET, DELETE, APPEND = 0, 1, 2
NAME = "headwater_broker.test_broker_loggers"


@pytest.fixture(autouse=True)
def logger() -> Iterator[logging.Logger]:
    """A logger of this test; its level is undone."""
    found = logging.getLogger(NAME)
    yield found
    found.setLevel(logging.NOTSET)


async def describe(c: Connection, broker: str = "1", *names: str) -> DescribeConfigsResult:
    resource = DescribeConfigsResource(
        resource_type=BROKER_LOGGER, resource_name=broker, configuration_keys=names or None
    )
    reply = await c.call(DescribeConfigsRequest(resources=(resource,)), DescribeConfigsResponse)
    return reply.results[0]


async def alter(
    c: Connection, *rows: AlterableConfig, broker: str = "1", validate_only: bool = False
) -> AlterConfigsResourceResponse:
    resource = AlterConfigsResource(resource_type=BROKER_LOGGER, resource_name=broker, configs=rows)
    request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=validate_only)
    reply = await c.call(request, IncrementalAlterConfigsResponse)
    return reply.responses[0]


def change(name: str, operation: int, value: str | None = None) -> AlterableConfig:
    return AlterableConfig(name=name, config_operation=operation, value=value)


def test_levels_are_shown_set_and_reset(tmp_path: Path, logger: logging.Logger) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        found = await describe(c)
        assert found.error_code == 0
        names = {row.name for row in found.configs}
        assert {"root", NAME, "headwater_broker", "headwater_broker.log"} <= names
        row = (await describe(c, "1", NAME)).configs[0]
        assert (row.config_source, row.read_only, row.is_sensitive) == (6, False, False)
        assert (await alter(c, change(NAME, SET, "DEBUG"), validate_only=True)).error_code == 0
        assert not logger.isEnabledFor(logging.DEBUG)
        assert (await alter(c, change(NAME, SET, "DEBUG"))).error_code == 0
        assert logger.isEnabledFor(logging.DEBUG)
        assert (await describe(c, "1", NAME)).configs[0].value == "DEBUG"
        assert (await alter(c, change(NAME, DELETE))).error_code == 0
        assert not logger.isEnabledFor(logging.DEBUG)

    serve(tmp_path, story)


@pytest.mark.parametrize(
    ("row", "broker", "code"),
    [
        (change("no.such", SET, "INFO"), "1", ErrorCode.INVALID_CONFIG),
        (change(NAME, SET, "LOUD"), "1", ErrorCode.INVALID_CONFIG),
        (change(NAME, SET, None), "1", ErrorCode.INVALID_CONFIG),
        (change("root", DELETE), "1", ErrorCode.INVALID_CONFIG),
        (change(NAME, APPEND, "INFO"), "1", ErrorCode.INVALID_REQUEST),
        (change(NAME, SET, "INFO"), "2", ErrorCode.INVALID_REQUEST),
        (change(NAME, SET, "INFO"), "", ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_of_it_is_done(
    tmp_path: Path, row: AlterableConfig, broker: str, code: ErrorCode, logger: logging.Logger
) -> None:
    async def story(_: SoloBroker, c: Connection) -> None:
        good = change("headwater_broker.log", SET, "TRACE")
        reply = await alter(c, good, row, broker=broker)
        assert reply.error_code == code
        assert reply.error_message
        assert logging.getLogger("headwater_broker.log").level == logging.NOTSET

    serve(tmp_path, story)


def test_the_loggers_of_another_broker_are_not_described(tmp_path: Path) -> None:
    async def story(_: SoloBroker, c: Connection) -> None:
        assert (await describe(c, "2")).error_code == ErrorCode.INVALID_REQUEST

    serve(tmp_path, story)


def test_alter_configs_that_replaces_all_is_refused(tmp_path: Path) -> None:
    async def story(_: SoloBroker, c: Connection) -> None:
        resource = k33.AlterConfigsResource(
            resource_type=BROKER_LOGGER,
            resource_name="1",
            configs=(k33.AlterableConfig(name=NAME, value="DEBUG"),),
        )
        request = k33.AlterConfigsRequest(resources=(resource,))
        reply = await c.call(request, k33.AlterConfigsResponse)
        assert reply.responses[0].error_code == ErrorCode.INVALID_REQUEST

    serve(tmp_path, story)


@pytest.mark.parametrize("operation", [Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS])
def test_a_right_on_the_cluster_is_needed(
    tmp_path: Path, operation: Operation, logger: logging.Logger
) -> None:
    async def story(_: SoloBroker, c: Connection) -> None:
        described = await describe(c)
        altered = await alter(c, change(NAME, SET, "DEBUG"))
        refused = described if operation is Operation.DESCRIBE_CONFIGS else altered
        assert refused.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert logger.isEnabledFor(logging.DEBUG) is (operation is Operation.DESCRIBE_CONFIGS)

    serve(tmp_path, story, Denies(operation, ResourceType.CLUSTER))
