"""The configs of groups (KIP-848): real handlers, controller, znodes; what coordinators get."""

from __future__ import annotations

import pytest

from headwater.config.keys import broker_values
from headwater.errors import ErrorCode
from headwater.ports.metadata_store import Create, Set
from headwater.wire.apis.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from headwater.wire.apis.k74_list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from headwater_broker.api.k32_describe_configs import describe_configs
from headwater_broker.api.k74_list_config_resources import list_config_resources
from headwater_broker.metadata import znodes
from headwater_broker.metadata.group_settings import GroupSettings, KnownGroupSettings
from unit.api.test_broker_configs import DELETE, SET, change
from unit.api.test_moving import context, play, standby
from unit.controller.brokers_in_memory import Cluster, FakeBroker, until

GROUP = 32
GROUP_CONFIG, DEFAULT = 8, 5
SESSION, BEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


def described(broker: FakeBroker, group: str) -> dict[str, tuple[str | None, int]]:
    row = DescribeConfigsResource(resource_type=GROUP, resource_name=group)
    reply = describe_configs(context(broker, 4), DescribeConfigsRequest(resources=(row,)))
    assert isinstance(reply, DescribeConfigsResponse)
    (result,) = reply.results
    assert result.error_code == ErrorCode.NONE, result.error_message
    return {c.name: (c.value, c.config_source) for c in result.configs}


def listed(broker: FakeBroker, *kinds: int) -> list[tuple[int, str]]:
    request = ListConfigResourcesRequest(resource_types=kinds)
    reply = list_config_resources(context(broker, 1), request)
    assert isinstance(reply, ListConfigResourcesResponse)
    assert reply.error_code == ErrorCode.NONE
    return [(row.resource_type, row.resource_name) for row in reply.config_resources]


def settings_of(broker: FakeBroker, **properties: str) -> KnownGroupSettings:
    values = broker_values(properties)
    return KnownGroupSettings(broker.view, lambda: values, lambda: properties)


def test_configs_of_a_group_reach_every_broker_and_outlive_the_controller() -> None:
    async def story(cluster: Cluster) -> None:
        asked = standby(cluster)
        group = "billing/Köln"
        known = settings_of(asked)
        assert known(group) == GroupSettings()
        assert known(group) is known("another"), "one value for all groups without configs"
        done = await change(asked, GROUP, group, (SESSION, SET, "50000"), (BEAT, SET, "6000"))
        assert done[0] is ErrorCode.NONE, done
        told = {group: {SESSION: "50000", BEAT: "6000"}}
        assert [b.view.group_configs for b in cluster.all()] == [told] * 3
        node = await asked.store.get("/config/groups/billing%2FK%C3%B6ln")
        assert znodes.decode_overrides("", node.data) == told[group]
        assert described(asked, group)[SESSION] == ("50000", GROUP_CONFIG)
        assert described(asked, "another")[SESSION] == ("45000", DEFAULT)
        assert listed(asked, GROUP) == [(GROUP, group)]
        assert (GROUP, group) in listed(asked) and (4, "1") in listed(asked)
        assert known(group).consumer_session_timeout_ms == 50_000
        assert known(group).consumer_heartbeat_interval_ms == 6_000
        assert known("another") == GroupSettings()
        first = next(b.broker_id for b in cluster.all() if b.controller.is_active)
        await cluster.kill(first)
        await until(lambda: any(b.controller.is_active for b in cluster.all()))
        again = await cluster.add(first)
        await until(lambda: again.view.group_configs == told)
        assert (await change(again, GROUP, group, (SESSION, DELETE, None)))[0] is ErrorCode.NONE
        await until(lambda: described(again, group)[SESSION] == ("45000", DEFAULT))
        assert (await change(again, GROUP, group, (BEAT, DELETE, None)))[0] is ErrorCode.NONE
        await until(lambda: listed(again, GROUP) == [])

    play(story)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        (SESSION, "44999", "less than group.consumer.min.session.timeout.ms=45000"),
        (SESSION, "60001", "more than group.consumer.max.session.timeout.ms=60000"),
        (BEAT, "4999", "group.consumer.min.heartbeat.interval.ms=5000"),
        (SESSION, "soon", "use a number of type int"),
        ("consumer.sesion.timeout.ms", "1", f"did you mean {SESSION}?"),
        ("share.record.lock.duration.ms", "14000", "group.share.min.record.lock.duration.ms"),
        ("share.delivery.count.limit", "11", "group.share.max.delivery.count.limit=10"),
        ("share.auto.offset.reset", "by_duration:1h", "by_duration:PT6H"),
        ("share.isolation.level", "serial", "read_uncommitted"),
    ],
)
def test_what_a_group_may_not_set(key: str, value: str, words: str) -> None:
    async def story(cluster: Cluster) -> None:
        one = cluster.brokers[1]
        code, text = await change(one, GROUP, "g", (key, SET, value))
        assert code is ErrorCode.INVALID_CONFIG and words in text, text
        assert one.view.group_configs == {}

    play(story)


def test_a_group_has_a_name_and_a_trial_changes_nothing() -> None:
    async def story(cluster: Cluster) -> None:
        one = cluster.brokers[1]
        code, text = await change(one, GROUP, "", (SESSION, SET, "50000"))
        assert code is ErrorCode.INVALID_REQUEST and "empty" in text
        reset = ("share.auto.offset.reset", SET, "by_duration:P1DT2H")
        done = await change(one, GROUP, "g", reset, validate_only=True)
        assert done[0] is ErrorCode.NONE and one.view.group_configs == {}

    play(story)


def test_what_a_tool_wrote_is_used_within_the_brokers_bounds() -> None:
    """As Kafka clamps a value that is out of bounds by the time that it is used."""

    async def story(cluster: Cluster) -> None:
        one = cluster.brokers[1]
        known = settings_of(one, **{"group.consumer.heartbeat.interval.ms": "7000"})
        assert known("g").consumer_heartbeat_interval_ms == 7_000
        data = znodes.encode_overrides(
            {SESSION: "99000", BEAT: "soon", "share.isolation.level": "x"}
        )
        change_node = b'{"version":2,"entity_path":"groups/g"}'
        await one.store.multi(
            [
                Create("/config/groups/g", data),
                Create(f"{znodes.CONFIG_CHANGES}/config_change_", change_node, sequential=True),
            ]
        )
        await until(lambda: "g" in one.view.group_configs)
        assert known("g").consumer_session_timeout_ms == 60_000
        assert known("g").consumer_heartbeat_interval_ms == 7_000
        assert known("g").share_isolation_level == "read_uncommitted"
        good = znodes.encode_overrides({SESSION: "46000"})
        await one.store.multi(
            [
                Set("/config/groups/g", good),
                Create(f"{znodes.CONFIG_CHANGES}/config_change_", change_node, sequential=True),
            ]
        )
        await until(lambda: known("g").consumer_session_timeout_ms == 46_000)

    play(story)


def test_resources_of_an_unknown_type_and_client_metrics() -> None:
    async def story(cluster: Cluster) -> None:
        one = cluster.brokers[1]
        request = ListConfigResourcesRequest(resource_types=(99,))
        reply = list_config_resources(context(one, 1), request)
        assert reply.error_code == ErrorCode.UNSUPPORTED_VERSION  # type: ignore[union-attr]
        old = list_config_resources(context(one, 0), ListConfigResourcesRequest())
        assert old.config_resources == ()  # type: ignore[union-attr]
        assert (8, "1") in listed(one, 8)

    play(story)
