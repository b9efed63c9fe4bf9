"""Metadata of dead replicas, internal topics and topics created on demand; coordinators."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path
from uuid import UUID

import pytest

from headwater.client.connection import Connection, open_connection
from headwater.errors import ErrorCode
from headwater.topic_names import OFFSETS_TOPIC
from headwater.wire.apis.k03_metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
)
from headwater.wire.apis.k10_find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from headwater.wire.apis.k19_create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from headwater.wire.schema import decode, encode
from headwater_broker.api.k03_metadata import CREATED_AT_ONCE
from headwater_broker.api.registry import load_handlers
from headwater_broker.network.listener import Listener
from solo_broker import SoloBroker
from unit.network.test_data_plane import Scenario
from whole_cluster import WholeCluster


def serve(folder: Path, scenario: Scenario) -> None:
    async def run() -> None:
        broker = SoloBroker(folder, offsets_topic_num_partitions="3")
        broker.racks = {2: "x"}  # brokers 1 and 2 live, 3 does not
        async with broker:
            connection = await open_connection("127.0.0.1", broker.port)
            await asyncio.wait_for(scenario(broker, connection), 30)
            connection.close()

    asyncio.run(run())


async def row(c: Connection, version: int) -> MetadataResponsePartition:
    request = MetadataRequest(topics=(MetadataRequestTopic(name="t"),))
    (topic,) = (await c.call(request, MetadataResponse, version=version)).topics
    assert topic.error_code == 0, "a partition's error is not its topic's"
    (partition,) = topic.partitions
    return partition


@pytest.mark.parametrize("version", [0, 1, 5, 12])
def test_dead_replicas_are_named_beside_a_live_leader(tmp_path: Path, version: int) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t", replicas=(1, 2, 3), isr=(1, 3))
        told = await row(c, version)
        assert told.leader_id == 1
        if version == 0:
            assert told.error_code == ErrorCode.REPLICA_NOT_AVAILABLE
            assert (told.replica_nodes, told.isr_nodes) == ((1, 2), (1,))
        else:
            assert told.error_code == 0
            assert (told.replica_nodes, told.isr_nodes) == ((1, 2, 3), (1, 3))
        assert told.offline_replicas == ((3,) if version >= 5 else ())

    serve(tmp_path, scenario)


@pytest.mark.parametrize("version", [0, 12])
def test_a_dead_leader_is_none(tmp_path: Path, version: int) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t", replicas=(1, 2, 3), leader=3)
        told = await row(c, version)
        assert (told.error_code, told.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)

    serve(tmp_path, scenario)


def test_a_partition_without_a_leader_has_no_replica_in_sync(tmp_path: Path) -> None:
    """The controller keeps the last ISR of an offline partition; Kafka's tools tell from an ISR
    smaller than the replicas that a partition is under-replicated."""

    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t", replicas=(3,), leader=-1)
        told = await row(c, 12)
        assert (told.replica_nodes, told.isr_nodes, told.offline_replicas) == ((3,), (), (3,))

    serve(tmp_path, scenario)


async def look(c: Connection, name: str) -> ErrorCode:
    """The code of a topic that may be created on demand."""
    request = MetadataRequest(topics=(MetadataRequestTopic(name=name),))
    (topic,) = (await c.call(request, MetadataResponse, version=12)).topics
    return ErrorCode(topic.error_code)


def test_why_a_topic_was_not_created_on_demand_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        code, asked = ErrorCode.INVALID_REPLICATION_FACTOR, 0
        create = broker.forward

        async def refuse(key: int, version: int, body: bytes, principal: str) -> bytes:
            nonlocal asked
            asked += 1
            row = CreatableTopicResult(name="wide", error_code=code, error_message="2 of 5 live")
            return encode(CreateTopicsResponse(topics=(row,)), version)

        monkeypatch.setattr(broker, "forward", refuse)
        assert await look(c, "wide") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "it is being tried"
        assert [await look(c, "wide") for _ in range(3)] == [code] * 3
        assert asked == 1, "and the controller is left alone for a while"
        code = ErrorCode.REQUEST_TIMED_OUT
        broker.services.auto_topics.failures.put("wide", code, broker.services.clock)
        told = [await look(c, "wide") for _ in range(3)]
        assert set(told) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION} and asked > 1, (
            "it may yet be made"
        )
        monkeypatch.setattr(broker, "forward", create)
        while await look(c, "wide") is not ErrorCode.NONE:
            await asyncio.sleep(0)

    serve(tmp_path, scenario)


def test_topics_of_one_request_are_created_together_and_not_without_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        create, asked = broker.forward, list[tuple[str, ...]]()

        async def count(key: int, version: int, body: bytes, principal: str) -> bytes:
            asked.append(tuple(t.name for t in decode(CreateTopicsRequest, version, body).topics))
            return await create(key, version, body, principal)

        monkeypatch.setattr(broker, "forward", count)
        new = tuple(f"t{number:03}" for number in range(CREATED_AT_ONCE + 2))
        names = ("t000", "t000/b", *new)
        topics = tuple(MetadataRequestTopic(name=name) for name in names)
        told = []
        for _ in range(3):
            reply = await c.call(MetadataRequest(topics=topics), MetadataResponse, version=12)
            told.append([t.name for t in reply.topics if t.error_code == 0])
        first, rest = new[:CREATED_AT_ONCE], new[CREATED_AT_ONCE:]
        assert asked == [first, rest], "the second look asks for the rest"
        assert told == [[], list(first), list(new)], "t000 has one row"

    serve(tmp_path, scenario)


def test_asking_for_kafkas_own_metadata_log_makes_no_topic(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        for _ in range(3):
            code = await look(c, "__cluster_metadata")
            assert code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert broker.forwarded == []

    serve(tmp_path, scenario)


async def coordinator(c: Connection) -> FindCoordinatorResponse:
    return await c.call(FindCoordinatorRequest(key="g"), FindCoordinatorResponse, version=1)


def test_the_first_look_for_a_coordinator_makes_its_topic(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        found = await coordinator(c)
        assert (found.error_code, found.node_id, found.port) == (0, 1, broker.port)
        assert (await coordinator(c)).node_id == 1
        assert broker.forwarded == [19], "once"
        assert len(broker.view.topics[OFFSETS_TOPIC].partitions) == 3

    serve(tmp_path, scenario)


def test_a_coordinator_that_is_dead_is_not_available(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic(OFFSETS_TOPIC, 3, replicas=(1, 3), leader=3)
        told = await coordinator(c)
        assert told.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (told.node_id, told.host, told.port) == (-1, "", -1)

    serve(tmp_path, scenario)


def test_the_offsets_topic_has_settings_of_its_own(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        made = broker.services.auto_topics.creatable(OFFSETS_TOPIC)
        assert (made.num_partitions, made.replication_factor) == (3, 3), "though two brokers live"
        configs = {row.name: row.value for row in made.configs}
        assert configs["cleanup.policy"] == "compact"
        assert configs["segment.bytes"] == str(100 << 20)
        plain = broker.services.auto_topics.creatable("t")
        assert (plain.num_partitions, plain.replication_factor, plain.configs) == (1, 1, ())

    serve(tmp_path, scenario)


def test_a_topic_made_on_demand_has_the_brokers_counts(tmp_path: Path) -> None:
    async def scenario() -> None:
        configs = {"num_partitions": "4", "default_replication_factor": "2"}
        async with SoloBroker(tmp_path, **configs) as broker:
            made = broker.services.auto_topics.creatable("t")
            assert (made.num_partitions, made.replication_factor) == (4, 2)

    asyncio.run(scenario())


def test_groups_wait_until_their_topic_can_have_all_its_replicas(tmp_path: Path) -> None:
    """Of a cluster that starts the first broker is up before the others, and clients are there."""

    async def scenario() -> None:
        async with WholeCluster(tmp_path, 1, offsets_topic_replication_factor="2") as cluster:
            first, wait_ms = cluster.brokers[0], 300
            services = dataclasses.replace(
                first.services,
                config_now=lambda: dataclasses.replace(
                    first.services.config, internal_topic_wait_ms=wait_ms
                ),
            )
            listener = Listener(services, load_handlers(), asyncio.get_running_loop())
            connection = await open_connection("127.0.0.1", await listener.start("127.0.0.1", 0))
            early = await coordinator(connection)
            assert early.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            while (code := await look(connection, OFFSETS_TOPIC)) is unknown:
                await asyncio.sleep(0.01)  # it is being tried
            assert code is ErrorCode.INVALID_REPLICATION_FACTOR
            assert OFFSETS_TOPIC not in first.view.topics
            wait_ms = 50_000
            waiting = asyncio.create_task(coordinator(connection))
            for is_tried in (True, False):  # and then refused
                while services.background.is_running(("create", OFFSETS_TOPIC)) is not is_tried:
                    await asyncio.sleep(0)
            await cluster.start(1)
            assert (await waiting).error_code == 0, "it has heard of the second broker"
            made = first.view.topics[OFFSETS_TOPIC].partitions.values()
            assert [sorted(partition.replicas) for partition in made] == [[0, 1], [0, 1]]
            connection.close()
            await listener.close()

    asyncio.run(asyncio.wait_for(scenario(), 60))


@pytest.mark.parametrize("version", [10, 11, 12])
def test_topics_are_asked_for_by_id_since_version_12(tmp_path: Path, version: int) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        topic_id = broker.create_topic("t")
        gone = UUID(int=77)
        asked = (
            MetadataRequestTopic(name="t"),
            MetadataRequestTopic(name="t", topic_id=topic_id),
            MetadataRequestTopic(name="t", topic_id=gone),
        )
        request = MetadataRequest(topics=asked)
        reply = await c.call(request, MetadataResponse, version=version)
        told = [(t.name, t.error_code) for t in reply.topics]
        if version < 12:
            assert told == [("t", ErrorCode.INVALID_REQUEST)] * 3
        else:
            # What has its name now is another topic than the one that was asked for.
            lost = (None, ErrorCode.UNKNOWN_TOPIC_ID)
            assert told == [("t", ErrorCode.NONE), ("t", ErrorCode.NONE), lost]

    serve(tmp_path, scenario)
