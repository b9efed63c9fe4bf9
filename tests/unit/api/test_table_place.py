"""A topic's config puts its table only where the operator allows: services write there."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, cast

import pytest

from headwater.errors import ErrorCode
from headwater.ports.authorizer import AllowAll, Operation
from headwater.wire.apis import k19_create_topics as k19
from headwater.wire.apis import k33_alter_configs as k33
from headwater.wire.apis import k44_incremental_alter_configs as k44
from headwater_broker.api.api_config import ApiConfig
from headwater_broker.api.context import RequestContext
from headwater_broker.api.k19_create_topics import create_topics
from headwater_broker.api.k33_alter_configs import alter_configs
from headwater_broker.api.k44_incremental_alter_configs import incremental_alter_configs
from unit.api.test_moving import context, play, standby
from unit.api.test_rights import Grants, cluster, topic
from unit.controller.brokers_in_memory import Cluster, FakeBroker, until
from unit.controller.test_controller import create

KEY = "headwater.table.uri"
REFUSED = ErrorCode.POLICY_VIOLATION
OWNER = Grants(topic(Operation.CREATE), topic(Operation.ALTER_CONFIGS))
OPERATOR = Grants(*OWNER.rows, cluster(Operation.ALTER_CONFIGS))
OUTSIDE = "/etc"


def ask(broker: FakeBroker, version: int, authorizer: AllowAll) -> RequestContext:
    ctx = context(broker, version, authorizer)
    cast(Any, ctx.broker).config = ApiConfig(table_bases=("file:///lake",))
    return ctx


async def created(ctx: RequestContext, uri: str) -> tuple[ErrorCode, str]:
    config = k19.CreatableTopicConfig(name=KEY, value=uri)
    row = k19.CreatableTopic(name="t", num_partitions=1, replication_factor=1, configs=(config,))
    request = k19.CreateTopicsRequest(topics=(row,), timeout_ms=10_000)
    (answer,) = (await cast(Awaitable[Any], create_topics(ctx, request))).topics
    return ErrorCode(answer.error_code), answer.error_message or ""


async def altered(ctx: RequestContext, uri: str | None) -> ErrorCode:
    how = 1 if uri is None else 0
    config = k44.AlterableConfig(name=KEY, config_operation=how, value=uri)
    resource = k44.AlterConfigsResource(resource_type=2, resource_name="t", configs=(config,))
    request = k44.IncrementalAlterConfigsRequest(resources=(resource,))
    (answer,) = (await cast(Awaitable[Any], incremental_alter_configs(ctx, request))).responses
    return ErrorCode(answer.error_code)


async def replaced(ctx: RequestContext, uri: str) -> ErrorCode:
    config = k33.AlterableConfig(name=KEY, value=uri)
    resource = k33.AlterConfigsResource(resource_type=2, resource_name="t", configs=(config,))
    request = k33.AlterConfigsRequest(resources=(resource,))
    (answer,) = (await cast(Awaitable[Any], alter_configs(ctx, request))).responses
    return ErrorCode(answer.error_code)


@pytest.mark.parametrize(
    ("authorizer", "uri", "wanted"),
    [
        (OWNER, OUTSIDE, REFUSED),
        (OWNER, "/lake/../etc", REFUSED),
        (OWNER, "/lake/team", ErrorCode.NONE),
        (OWNER, "", ErrorCode.NONE),
        (OPERATOR, OUTSIDE, ErrorCode.NONE),
        (AllowAll(), OUTSIDE, ErrorCode.NONE),
    ],
)
def test_a_topic_is_created_with_its_table_in_an_allowed_place(
    authorizer: AllowAll, uri: str, wanted: ErrorCode
) -> None:
    async def story(world: Cluster) -> None:
        asked = standby(world)
        code, text = await created(ask(asked, 7, authorizer), uri)
        assert code is wanted
        if wanted is ErrorCode.NONE:
            await until(lambda: "t" in asked.view.topics)
        if wanted is REFUSED:
            assert KEY in text and "file:///lake" in text
            assert "headwater.tables.allowed.uris" in text

    play(story)


def test_a_config_moves_a_table_to_allowed_places_only() -> None:
    async def story(world: Cluster) -> None:
        asked = standby(world)
        await create(asked, "t", (1, 2))
        assert await altered(ask(asked, 1, OWNER), OUTSIDE) is REFUSED
        assert await replaced(ask(asked, 2, OWNER), OUTSIDE) is REFUSED
        assert asked.view.topics["t"].configs == {}
        assert await altered(ask(asked, 1, OWNER), "file:///lake/x") is ErrorCode.NONE
        assert await altered(ask(asked, 1, OPERATOR), OUTSIDE) is ErrorCode.NONE
        await until(lambda: asked.view.topics["t"].configs.get(KEY) == OUTSIDE)
        # What the operator has set stays, also where all configs are given again.
        assert await replaced(ask(asked, 2, OWNER), OUTSIDE) is ErrorCode.NONE
        assert await altered(ask(asked, 1, OWNER), None) is ErrorCode.NONE
        await until(lambda: KEY not in asked.view.topics["t"].configs)
        assert await replaced(ask(asked, 2, OWNER), OUTSIDE) is REFUSED

    play(story)
