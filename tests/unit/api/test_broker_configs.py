"""Configs of topics and brokers, changed while the broker runs: real handlers and controller."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from headwater.client.connection import Connection, open_connection
from headwater.config.layers import BrokerSettings
from headwater.errors import ErrorCode
from headwater.ports.metadata_store import Create, Delete, Set
from headwater.wire.apis import k33_alter_configs as k33
from headwater.wire.apis import k44_incremental_alter_configs as k44
from headwater.wire.apis.k19_create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from headwater.wire.apis.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from headwater.wire.control import ForwardRequest
from headwater.wire.schema import decode, encode
from headwater_broker.api.k33_alter_configs import alter_configs
from headwater_broker.api.k44_incremental_alter_configs import incremental_alter_configs
from headwater_broker.controller.admin_requests import AdminExecutor
from headwater_broker.controller.events import TopicResult
from headwater_broker.metadata import znodes
from solo_broker import SoloBroker
from unit.api.test_moving import context, play, standby
from unit.controller.brokers_in_memory import Cluster, FakeBroker, until
from unit.controller.test_controller import create

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)
OWN, CLUSTER_WIDE, FILE, DEFAULT = 2, 3, 4, 5

Operation = tuple[str, int, str | None]


async def change(
    broker: FakeBroker, kind: int, name: str, *operations: Operation, validate_only: bool = False
) -> tuple[ErrorCode, str]:
    rows = tuple(
        k44.AlterableConfig(name=key, config_operation=op, value=value)
        for key, op, value in operations
    )
    resource = k44.AlterConfigsResource(resource_type=kind, resource_name=name, configs=rows)
    request = k44.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=validate_only)
    reply = await incremental_alter_configs(context(broker, 1), request)
    assert isinstance(reply, k44.IncrementalAlterConfigsResponse)
    row = reply.responses[0]
    assert (row.resource_type, row.resource_name) == (kind, name)
    return ErrorCode(row.error_code), row.error_message or ""


async def replace_all(broker: FakeBroker, kind: int, name: str, **configs: str) -> ErrorCode:
    rows = tuple(k33.AlterableConfig(name=k.replace("_", "."), value=v) for k, v in configs.items())
    resource = k33.AlterConfigsResource(resource_type=kind, resource_name=name, configs=rows)
    request = k33.AlterConfigsRequest(resources=(resource,))
    reply = await alter_configs(context(broker, 2), request)
    assert isinstance(reply, k33.AlterConfigsResponse)
    return ErrorCode(reply.responses[0].error_code)


def test_broker_configs_reach_every_broker_and_outlive_the_controller() -> None:
    async def story(cluster: Cluster) -> None:
        asked = standby(cluster)
        done = (ErrorCode.NONE, "")
        assert await change(asked, BROKER, "", ("log.retention.ms", SET, "5000")) == done
        assert await change(asked, BROKER, "2", ("min.insync.replicas", SET, "2")) == done
        told = {"": {"log.retention.ms": "5000"}, "2": {"min.insync.replicas": "2"}}
        assert [b.view.broker_configs for b in cluster.all()] == [told] * 3
        node = await asked.store.get("/config/brokers/<default>")
        assert znodes.decode_overrides("", node.data) == told[""]
        first = next(b.broker_id for b in cluster.all() if b.controller.is_active)
        await cluster.kill(first)
        await until(lambda: any(b.controller.is_active for b in cluster.all()))
        again = await cluster.add(first)
        await until(lambda: again.view.broker_configs == told)
        assert await change(again, BROKER, "", ("log.retention.ms", DELETE, None)) == done
        assert await replace_all(again, BROKER, "2", num_partitions="3") is ErrorCode.NONE
        left = {"": {}, "2": {"num.partitions": "3"}}
        await until(lambda: all(b.view.broker_configs == left for b in cluster.all()))

    play(story)


@pytest.mark.parametrize(
    ("name", "operation", "code", "words"),
    [
        ("1", ("log.dirs", SET, "/x"), ErrorCode.INVALID_REQUEST, "restart the broker"),
        ("", ("log.retention.ms", SET, "soon"), ErrorCode.INVALID_REQUEST, "type long"),
        ("1", ("log.cleaner.threads", SET, "-5"), ErrorCode.INVALID_REQUEST, "at least 1"),
        ("", ("no.such", SET, "1"), ErrorCode.INVALID_CONFIG, "no such broker key"),
        ("", ("retention.ms", SET, "1"), ErrorCode.INVALID_CONFIG, "log.retention.ms"),
        ("one", ("log.retention.ms", SET, "1"), ErrorCode.INVALID_REQUEST, "not a broker id"),
        ("", ("log.retention.ms", SET, None), ErrorCode.INVALID_REQUEST, "null"),
        ("", ("log.retention.ms", APPEND, "1"), ErrorCode.INVALID_CONFIG, "not a list"),
        (
            "",
            ("max.connections.per.ip.overrides", SET, "here:2"),
            ErrorCode.INVALID_REQUEST,
            "address:count",
        ),
        ("", ("log.cleanup.policy", 9, "delete"), ErrorCode.INVALID_REQUEST, "operation 9"),
    ],
)
def test_what_is_refused_changes_nothing(
    name: str, operation: Operation, code: ErrorCode, words: str
) -> None:
    async def story(cluster: Cluster) -> None:
        one = cluster.brokers[1]
        found, text = await change(one, BROKER, name, operation)
        assert found is code and words in text, text
        assert one.view.broker_configs == {}

    play(story, brokers=1)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("", ErrorCode.INVALID_REQUEST),
        ("a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_configs_of_no_topic_are_refused_as_in_kafka(name: str, code: ErrorCode) -> None:
    async def story(cluster: Cluster) -> None:
        one = cluster.brokers[1]
        found, text = await change(one, TOPIC, name, ("retention.ms", SET, "5"))
        assert found is code and text
        assert await replace_all(one, TOPIC, name, retention_ms="5") is code

    play(story, brokers=1)


def test_configs_larger_than_a_node_are_refused_and_cost_no_term() -> None:
    """ZooKeeper closes the connection over them: the controller sent them again, for ever."""

    async def story(cluster: Cluster) -> None:
        one = cluster.brokers[1]
        await create(one, "t", (1,))
        epoch = one.controller.controller_epoch
        half, key = " " * 300_000, "segment.ms"
        for large in (half * 4, half * 2):
            for kind, name, of in ((TOPIC, "t", ""), (BROKER, "", "log."), (BROKER, "1", "log.")):
                code, text = await change(one, kind, name, (f"{of}retention.ms", SET, f"5{large}"))
                assert code is ErrorCode.INVALID_CONFIG and "ZooKeeper" in text, text
        done = (ErrorCode.NONE, "")
        assert await change(one, TOPIC, "t", ("retention.ms", SET, f"5{half}")) == done
        code, text = await change(one, TOPIC, "t", (key, SET, f"5{half}"))
        assert code is ErrorCode.INVALID_CONFIG and "the configs of this resource" in text, text
        assert await change(one, TOPIC, "t", (key, SET, "5")) == done
        row = CreatableTopicConfig(name=key, value=f"5{half}{half}")
        topic = CreatableTopic(name="u", num_partitions=1, replication_factor=1, configs=(row,))
        body = encode(CreateTopicsRequest(topics=(topic,), timeout_ms=5000), 7)
        reply = decode(CreateTopicsResponse, 7, await one.calls.forward(19, 7, body))
        assert reply.topics[0].error_code == ErrorCode.INVALID_CONFIG
        assert one.controller.controller_epoch == epoch

    play(story, brokers=1)


def test_lists_are_appended_to_and_validate_only_only_looks() -> None:
    async def story(cluster: Cluster) -> None:
        one = cluster.brokers[1]
        key = "log.cleanup.policy"
        looked = await change(one, BROKER, "", (key, APPEND, "compact"), validate_only=True)
        assert looked == (ErrorCode.NONE, "")
        assert one.view.broker_configs == {}
        await change(one, BROKER, "", (key, APPEND, "compact"))
        assert one.view.broker_configs[""] == {key: "delete,compact"}
        await change(one, BROKER, "", (key, SUBTRACT, "delete"))
        assert one.view.broker_configs[""] == {key: "compact"}

    play(story, brokers=1)


def test_a_request_that_contradicts_itself() -> None:
    async def story(cluster: Cluster) -> None:
        one = cluster.brokers[1]
        await create(one, "t", (1,))
        twice = ("retention.ms", SET, "1"), ("retention.ms", SET, "2")
        code, text = await change(one, TOPIC, "t", *twice)
        assert code is ErrorCode.INVALID_REQUEST and "retention.ms" in text
        resource = k44.AlterConfigsResource(resource_type=TOPIC, resource_name="t", configs=())
        request = k44.IncrementalAlterConfigsRequest(resources=(resource, resource))
        reply = await incremental_alter_configs(context(one, 1), request)
        assert [r.error_code for r in reply.responses] == [ErrorCode.INVALID_REQUEST] * 2
        assert one.view.topics["t"].configs == {}

    play(story, brokers=1)


def test_configs_written_by_hand_are_taken() -> None:
    async def story(cluster: Cluster) -> None:
        one = cluster.brokers[1]
        path = znodes.broker_config_path("1")
        note = b'{"version":2,"entity_path":"brokers/1"}'
        await one.store.multi(
            [
                Create(path, znodes.encode_overrides({"num.partitions": "7"})),
                Create(f"{znodes.CONFIG_CHANGES}/config_change_1", note),
            ]
        )
        await until(lambda: one.view.broker_configs == {"1": {"num.partitions": "7"}})
        done = await change(one, BROKER, "1", ("num.partitions", DELETE, None))
        assert done == (ErrorCode.NONE, "")
        assert one.view.broker_configs == {"1": {}}

    play(story, brokers=1)


def test_configs_whose_node_is_removed_by_hand_can_be_set_again() -> None:
    """The next change ended the controller's term."""

    async def story(cluster: Cluster) -> None:
        one = cluster.brokers[1]
        await change(one, BROKER, "1", ("num.partitions", SET, "7"))
        epoch = one.controller.controller_epoch
        note = b'{"version":2,"entity_path":"brokers/1"}'
        await one.store.multi(
            [
                Delete(znodes.broker_config_path("1")),
                Create(f"{znodes.CONFIG_CHANGES}/config_change_1", note),
            ]
        )
        await until(lambda: one.view.broker_configs == {"1": {}})
        done = await change(one, BROKER, "1", ("num.partitions", SET, "8"))
        assert done == (ErrorCode.NONE, "")
        assert one.view.broker_configs == {"1": {"num.partitions": "8"}}
        assert one.controller.controller_epoch == epoch

    play(story, brokers=1)


def test_topic_configs_written_by_hand_are_taken_and_their_notes_go() -> None:
    async def story(cluster: Cluster) -> None:
        one = cluster.brokers[1]
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
        body = encode(CreateTopicsRequest(topics=(topic,), timeout_ms=5000), 7)
        await one.calls.forward(19, 7, body)
        path, notes = znodes.topic_config_path("t"), znodes.CONFIG_CHANGES

        async def write(number: int, note: bytes, **configs: str) -> None:
            written = {k.replace("_", "."): v for k, v in configs.items()}
            await one.store.ensure_path(path)
            await one.store.multi(
                [
                    Set(path, znodes.encode_overrides(written)),
                    Create(f"{notes}/config_change_{number}", note),
                ]
            )
            await until(lambda: not any(p.startswith(f"{notes}/") for p in cluster.tree.paths()))

        await write(1, b'"t"', retention_ms="5", segment_bytes="9999")
        await until(
            lambda: one.view.topics["t"].configs == {"retention.ms": "5", "segment.bytes": "9999"}
        )
        await write(2, b'{"version":2,"entity_path":"topics/t"}', retention_ms="never")
        await write(3, b'"of nobody"')
        await write(4, b'"t"', retention_ms="6")
        await until(lambda: one.view.topics["t"].configs == {"retention.ms": "6"})

    play(story, brokers=1)


def test_topics_and_brokers_in_one_request_each_get_their_row() -> None:
    async def story(cluster: Cluster) -> None:
        one = cluster.brokers[1]
        await create(one, "t", (1,))
        rows = (k44.AlterableConfig(name="min.insync.replicas", config_operation=SET, value="2"),)
        asked = [(TOPIC, "t"), (BROKER, ""), (TOPIC, "nowhere"), (77, "x")]
        request = k44.IncrementalAlterConfigsRequest(
            resources=tuple(
                k44.AlterConfigsResource(resource_type=kind, resource_name=name, configs=rows)
                for kind, name in asked
            )
        )
        reply = await incremental_alter_configs(context(one, 1), request)
        assert [(r.resource_type, r.resource_name) for r in reply.responses] == asked
        assert [r.error_code for r in reply.responses] == [
            0,
            0,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.INVALID_REQUEST,
        ]

    play(story, brokers=1)


async def describe(
    c: Connection, kind: int, name: str, *keys: str
) -> dict[str, DescribeConfigsResourceResult]:
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=keys or None
    )
    request = DescribeConfigsRequest(
        resources=(resource,), include_synonyms=True, include_documentation=True
    )
    reply = await c.call(request, DescribeConfigsResponse)
    assert reply.results[0].error_code == 0, reply.results[0].error_message
    return {row.name: row for row in reply.results[0].configs}


async def described(c: Connection, keys: tuple[str, ...] | None) -> set[str]:
    """The names of the configs of topic t that an answer to these keys has."""
    row = DescribeConfigsResource(resource_type=TOPIC, resource_name="t", configuration_keys=keys)
    reply = await c.call(DescribeConfigsRequest(resources=(row,)), DescribeConfigsResponse)
    return {found.name for found in reply.results[0].configs}


def serve(folder: Path, story: Any, **properties: str) -> None:
    async def main() -> None:
        async with SoloBroker(folder, **properties) as broker:
            connection = await open_connection("127.0.0.1", broker.port)
            await asyncio.wait_for(story(broker, connection), 30)
            connection.close()

    asyncio.run(main())


def test_no_list_of_keys_and_an_empty_one_mean_all(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t")
        everything = await described(c, None)
        assert await described(c, ()) == everything and len(everything) > 20
        assert await described(c, ("segment.bytes",)) == {"segment.bytes"}

    serve(tmp_path, story)


def test_what_is_told_of_a_dynamic_config(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t")
        key = "min.insync.replicas"
        before = (await describe(c, BROKER, "1"))[key]
        assert (before.value, before.config_source, before.read_only) == ("2", FILE, False)
        assert await describe(c, BROKER, "") == {}
        broker.configure(all_brokers={key: "3", "num.partitions": "6"}, broker_1={key: "4"})
        own = (await describe(c, BROKER, "01", key))[key]
        assert (own.value, own.config_source) == ("4", OWN)
        synonyms = [(s.value, s.source) for s in own.synonyms]
        assert synonyms == [("4", OWN), ("3", CLUSTER_WIDE), ("2", FILE), ("1", DEFAULT)]
        assert own.documentation
        shared = await describe(c, BROKER, "")
        assert {k: (r.value, r.config_source) for k, r in shared.items()} == {
            key: ("3", CLUSTER_WIDE),
            "num.partitions": ("6", CLUSTER_WIDE),
        }
        of_topic = (await describe(c, TOPIC, "t", key))[key]
        assert (of_topic.value, of_topic.config_source) == ("4", OWN)
        fixed = (await describe(c, BROKER, "1", "log.dirs"))["log.dirs"]
        assert fixed.read_only
        broker.configure(broker_2={key: "5"})
        assert (await describe(c, BROKER, "1", key))[key].value == "2"

    serve(tmp_path, story, min_insync_replicas="2")


def test_a_dynamic_config_counts_at_once_and_until_it_is_taken_back(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("plain")
        broker.create_topic("own", configs={"retention.ms": "1"})
        changed = {"log.retention.ms": "77", "num.partitions": "6", "max.connections": "1"}
        broker.configure(all_brokers=changed)
        logs = {name: broker.replicas.lookup(name, 0).log for name in ("plain", "own")}
        assert {n: log.config.retention_ms for n, log in logs.items()} == {"plain": 77, "own": 1}
        assert broker.services.config.num_partitions == 6
        broker.create_topic("later")
        assert broker.replicas.lookup("later", 0).log.config.retention_ms == 77
        second = asyncio.create_task(open_connection("127.0.0.1", broker.port))
        while not broker.listener.waiting:
            await asyncio.sleep(0)
        broker.configure(all_brokers={"zzz": "1", "log.dirs": "/x", "num.partitions": "none"})
        assert logs["plain"].config.retention_ms == 604_800_000
        assert broker.services.config.num_partitions == 1
        assert await describe(await second, TOPIC, "plain")
        (await second).close()

    serve(tmp_path, story)


def test_created_topics_tell_their_effective_configs() -> None:
    async def story(cluster: Cluster) -> None:
        one = cluster.brokers[1]
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
        body = encode(CreateTopicsRequest(topics=(topic,), timeout_ms=5000), 7)
        reply = decode(CreateTopicsResponse, 7, await one.calls.forward(19, 7, body))
        found = {c.name: (c.value, c.config_source) for c in reply.topics[0].configs or ()}
        assert found["retention.ms"] == ("604800000", DEFAULT)

    play(story, brokers=1)


class Creates:
    """A controller that creates topics with these overrides."""

    def __init__(self, overrides: dict[str, str]) -> None:
        self._overrides = overrides

    async def ask(self, _event: object) -> tuple[TopicResult, ...]:
        return (TopicResult(name="t", configs=self._overrides),)


def test_topics_made_after_a_change_of_settings_tell_the_new_ones() -> None:
    given = [BrokerSettings(), BrokerSettings({"log.retention.ms": "5000"})]
    executor = AdminExecutor(lambda: given[0])
    body = encode(CreateTopicsRequest(topics=(CreatableTopic(name="t"),)), 7)
    request = ForwardRequest(
        forwarded_key=19, forwarded_version=7, principal="User:me", body=memoryview(body)
    )

    def retention(**overrides: str) -> str | None:
        answered = asyncio.run(executor.execute(cast(Any, Creates(overrides)), request))
        (made,) = decode(CreateTopicsResponse, 7, answered).topics
        return {c.name: c.value for c in made.configs or ()}["retention.ms"]

    assert (retention(), retention(**{"retention.ms": "7"}), retention()) == (
        "604800000",
        "7",
        "604800000",
    )
    del given[0]
    assert (retention(), retention(**{"retention.ms": "7"})) == ("5000", "7")


def test_what_cannot_be_a_topic_is_told_apart_from_what_is_none(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        rows = tuple(
            DescribeConfigsResource(resource_type=TOPIC, resource_name=name)
            for name in ("absent", "a/b", "")
        )
        reply = await c.call(DescribeConfigsRequest(resources=rows), DescribeConfigsResponse)
        invalid = ErrorCode.INVALID_TOPIC_EXCEPTION
        codes = [row.error_code for row in reply.results]
        assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, invalid, invalid]

    serve(tmp_path, story)
