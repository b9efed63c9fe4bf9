"""Requests that old tools write into ZooKeeper, the leader balance, and deposed controllers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from headwater.errors import ErrorCode
from headwater.ports.metadata_store import Create, Delete, NoNodeError, Set
from headwater.wire.apis.k19_create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from headwater.wire.apis.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from headwater.wire.apis.k37_create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from headwater.wire.schema import decode, encode
from headwater_broker.api.k19_create_topics import create_topics
from headwater_broker.api.k20_delete_topics import delete_topics
from headwater_broker.api.k37_create_partitions import create_partitions
from headwater_broker.controller.events import (
    AutoPreferredLeaderElection,
    CreatePartitions,
    ElectLeaders,
    PartitionGrowth,
    Reassign,
)
from headwater_broker.controller.state import ControllerConfig
from headwater_broker.controller.timings import ControllerTimings
from headwater_broker.metadata import znodes
from unit.api.test_moving import context
from unit.controller.brokers_in_memory import Cluster, FakeBroker, until
from unit.controller.machine_world import World
from unit.controller.test_controller import create, leader, rejoin, rejoin_partition


def play(
    story: Callable[[Cluster], Awaitable[None]],
    brokers: int = 3,
    config: ControllerConfig | None = None,
    timings: ControllerTimings | None = None,
) -> None:
    async def main() -> None:
        async with Cluster(brokers, config, timings) as cluster:
            await asyncio.wait_for(story(cluster), 30)

    asyncio.run(main())


async def file_request(broker: FakeBroker, path: str, document: object = None) -> None:
    data = b"" if document is None else json.dumps(document).encode()
    await broker.store.multi([Create(path, data)])


async def is_gone(broker: FakeBroker, path: str) -> bool:
    try:
        await broker.store.get(path)
    except NoNodeError:
        return True
    return False


async def until_gone(broker: FakeBroker, path: str) -> None:
    for _ in range(500):
        if await is_gone(broker, path):
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"{path} stays")


def plan(*rows: tuple[str, int, list[int]]) -> object:
    parts = [{"topic": t, "partition": p, "replicas": r} for t, p, r in rows]
    return {"version": 1, "partitions": parts}


def test_a_reassignment_filed_in_the_store_runs_and_its_node_goes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(cluster: Cluster) -> None:
        one = cluster.brokers[1]
        await create(one, "t", (1, 2), (1, 2))
        rows = plan(("t", 0, [1, 3]), ("nowhere", 0, [1]), ("t", 1, [1, 9]))
        await file_request(one, znodes.REASSIGN_REQUEST, rows)
        await until(lambda: one.view.topics["t"].partitions[0].replicas == (1, 3, 2))
        await until_gone(one, znodes.REASSIGN_REQUEST)
        assert one.view.topics["t"].partitions[1].replicas == (1, 2), "one bad row, others go on"
        refused = [r.getMessage() for r in caplog.records if "refused" in r.getMessage()]
        assert (
            "nowhere-0 does not exist" in refused[0] and "[9] were never registered" in refused[1]
        )
        await rejoin_partition(one, "t", 0)
        await until(lambda: one.view.topics["t"].partitions[0].replicas == (1, 3))

    play(story)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"nonsense",
        b'{"partitions":[]}',
        b'{"partitions":[{"topic":"t","partition":1e999}]}',
        b'{"partitions":[{"topic":"t","partition":0,"replicas":[NaN]}]}',
        b"[" * 1100,
    ],
    ids=["empty", "nonsense", "none", "infinite", "nan", "deep"],
)
def test_a_request_that_cannot_be_read_is_removed(data: bytes) -> None:
    async def story(cluster: Cluster) -> None:
        one = cluster.brokers[1]
        for path in (znodes.REASSIGN_REQUEST, znodes.PREFERRED_REQUEST):
            await one.store.multi([Create(path, data)])
            await until_gone(one, path)
        assert await create(one, "t", (1,)) is ErrorCode.NONE

    play(story, brokers=1)


def test_a_preferred_election_filed_in_the_store_moves_whom_it_can() -> None:
    async def story(cluster: Cluster) -> None:
        one = cluster.brokers[1]
        await create(one, "t", (2, 1), (3, 1))
        await cluster.kill(2)
        await cluster.kill(3)
        one = cluster.all()[0]
        await until(lambda: [leader(one, "t", p) for p in (0, 1)] == [1, 1])
        for broker_id in (2, 3):
            await cluster.add(broker_id)
        await until(lambda: len(one.view.brokers) == 3)
        await rejoin(cluster, "t", 2)
        await cluster.kill(3)
        await until(lambda: 3 not in one.view.brokers)
        parts = [{"topic": "t", "partition": "0"}, {"topic": "t", "partition": 1}]
        await file_request(one, znodes.PREFERRED_REQUEST, {"partitions": parts})
        await until(lambda: leader(one, "t", 0) == 2)
        await until_gone(one, znodes.PREFERRED_REQUEST)
        assert leader(one, "t", 1) == 1, "its preferred replica is down"

    play(story)


def test_deletion_requests_in_the_store_and_those_of_unknown_topics() -> None:
    async def story(cluster: Cluster) -> None:
        one = cluster.brokers[1]
        await create(one, "t", (1, 2))
        for topic in ("t", "nowhere"):
            await file_request(one, znodes.delete_request_path(topic))
        await until(lambda: "t" not in one.view.topics)
        for topic in ("t", "nowhere"):
            await until_gone(one, znodes.delete_request_path(topic))
        await until(lambda: ("t", 0, True) in cluster.brokers[2].stopped)

    play(story)


KEEPS_TOPICS = ControllerConfig(delete_topic_enable=False)


def test_no_topic_is_deleted_on_request_while_deletion_is_disabled() -> None:
    async def story(cluster: Cluster) -> None:
        one = cluster.brokers[1]
        await create(one, "t", (1, 2))
        named = DeleteTopicState(name="t")
        by_id = DeleteTopicState(name=None, topic_id=one.view.topics["t"].topic_id)
        for row in (named, by_id):
            request = DeleteTopicsRequest(topics=(row,), timeout_ms=1000)
            [answer] = (await delete_topics(context(one, 6), request)).responses
            assert answer.error_code == ErrorCode.TOPIC_DELETION_DISABLED
            assert "delete.topic.enable" in (answer.error_message or "")
        for version, code in (
            (1, ErrorCode.INVALID_REQUEST),
            (2, ErrorCode.INVALID_REQUEST),
            (3, ErrorCode.TOPIC_DELETION_DISABLED),
        ):
            old = DeleteTopicsRequest(topic_names=("t",), timeout_ms=1000)
            [answer] = (await delete_topics(context(one, version), old)).responses
            assert answer.error_code == code
        assert leader(one, "t") == 1

    play(story, config=KEEPS_TOPICS)


def test_a_deletion_that_names_a_topic_twice_is_refused() -> None:
    async def story(cluster: Cluster) -> None:
        one = cluster.brokers[1]
        await create(one, "t", (1, 2))
        twice = (DeleteTopicState(name="t"),) * 2
        request = DeleteTopicsRequest(topics=twice, timeout_ms=1000)
        rows = (await delete_topics(context(one, 6), request)).responses
        assert [(r.name, r.error_code) for r in rows] == [("t", ErrorCode.INVALID_REQUEST)]
        old = DeleteTopicsRequest(topic_names=("t", "t"), timeout_ms=1000)
        rows = (await delete_topics(context(one, 5), old)).responses
        assert [(r.name, r.error_code) for r in rows] == [("t", ErrorCode.INVALID_REQUEST)]
        topic_id = one.view.topics["t"].topic_id
        named = (twice[0], DeleteTopicState(name=None, topic_id=topic_id))
        request = DeleteTopicsRequest(topics=named, timeout_ms=1000)
        [row] = (await delete_topics(context(one, 6), request)).responses
        told = (row.name, row.topic_id, row.error_code)
        assert told == ("t", topic_id, ErrorCode.INVALID_REQUEST)
        assert leader(one, "t") == 1

    play(story)


def test_a_name_that_stands_twice_in_a_request_is_refused_in_one_row() -> None:
    async def story(cluster: Cluster) -> None:
        one = cluster.brokers[1]
        await create(one, "t", (1, 2))
        refused, done = ErrorCode.INVALID_REQUEST, ErrorCode.NONE
        new = [CreatableTopic(name=n, num_partitions=1, replication_factor=1) for n in "abba"]
        new.insert(2, replace(new[0], name="c"))
        made = await create_topics(
            context(one, 7), CreateTopicsRequest(topics=tuple(new), timeout_ms=9000)
        )
        told = [(r.name, r.error_code) for r in made.topics]
        assert told == [("a", refused), ("b", refused), ("c", done)]
        rows = [CreatePartitionsTopic(name=n, count=2, assignments=None) for n in ("t", "c", "t")]
        grown = await create_partitions(
            context(one, 3), CreatePartitionsRequest(topics=tuple(rows), timeout_ms=9000)
        )
        assert [(r.name, r.error_code) for r in grown.results] == [("t", refused), ("c", done)]
        assert {n: len(v.partitions) for n, v in one.view.topics.items()} == {"t": 1, "c": 2}

    play(story)


def test_a_topic_that_is_refused_has_no_configs_rather_than_null() -> None:
    async def story(cluster: Cluster) -> None:
        one = cluster.brokers[1]
        topics = tuple(
            CreatableTopic(name=name, num_partitions=1, replication_factor=1)
            for name in ("a/b", "refused by the broker asked")
        )
        request = CreateTopicsRequest(topics=topics[:1], timeout_ms=9000)
        for version in (5, 6, 7):
            [by_controller] = (await create_topics(context(one, version), request)).topics
            assert (by_controller.error_code, by_controller.configs) == (
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                (),
            )
        late = CreateTopicsRequest(topics=topics[1:], timeout_ms=0)
        [by_broker] = (await create_topics(context(one, 7), late)).topics
        assert (by_broker.error_code, by_broker.configs) == (ErrorCode.REQUEST_TIMED_OUT, ())

    play(story)


def test_a_topic_that_assigns_a_partition_twice_is_not_made() -> None:
    async def story(cluster: Cluster) -> None:
        one = cluster.brokers[1]
        rows = tuple(CreatableReplicaAssignment(partition_index=0, broker_ids=(b,)) for b in (1, 2))
        topic = CreatableTopic(name="t", num_partitions=-1, replication_factor=-1, assignments=rows)
        body = encode(CreateTopicsRequest(topics=(topic,), timeout_ms=5000), 7)
        reply = decode(CreateTopicsResponse, 7, await one.calls.forward(19, 7, body))
        assert reply.topics[0].error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert "t" not in one.view.topics

    play(story)


def test_a_deletion_filed_while_deletion_is_disabled_is_dropped_and_the_topic_stays(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(cluster: Cluster) -> None:
        one = cluster.brokers[1]
        await create(one, "t", (1, 2))
        path = znodes.delete_request_path("t")
        await file_request(one, path)
        await until_gone(one, path)
        assert "the request to delete topic t is ignored" in caplog.text
        assert await is_gone(one, znodes.topic_path("t")) is False
        assert leader(one, "t") == 1
        assert cluster.brokers[1].stopped == cluster.brokers[2].stopped == []

    play(story, config=KEEPS_TOPICS)


def test_requests_in_the_store_without_a_controller_are_handled_later() -> None:
    async def story(cluster: Cluster) -> None:
        active = next(b for b in cluster.all() if b.controller.is_active)
        other = next(b for b in cluster.all() if b is not active)
        await create(active, "gone", (1, 2, 3))
        await create(active, "t", (other.broker_id,))
        await cluster.kill(active.broker_id)
        rows = plan(("t", 0, [other.broker_id, 6 - other.broker_id - active.broker_id]))
        await file_request(other, znodes.REASSIGN_REQUEST, rows)
        await file_request(other, znodes.delete_request_path("gone"))
        await until(lambda: "gone" not in other.view.topics)
        await until(lambda: len(other.view.topics["t"].partitions[0].replicas) == 2)
        await until_gone(other, znodes.REASSIGN_REQUEST)

    play(story)


def test_the_controllers_node_removed_by_hand_deposes_it() -> None:
    async def story(cluster: Cluster) -> None:
        one = cluster.brokers[1]
        epochs = {b.controller.controller_epoch for b in cluster.all()}
        await one.store.multi([Delete(znodes.CONTROLLER)])
        await until(lambda: any(b.controller.controller_epoch > max(epochs) for b in cluster.all()))
        await until(lambda: sum(b.controller.is_active for b in cluster.all()) == 1)
        assert await create(one, "t", (1, 2, 3)) is ErrorCode.NONE

    play(story)


def test_a_deposed_controller_writes_nothing() -> None:
    async def story(cluster: Cluster) -> None:
        one = cluster.brokers[1]
        active = next(b for b in cluster.all() if b.controller.is_active)
        before = active.controller.controller_epoch
        # Another controller has raised the epoch, and this one has not noticed.
        await one.store.multi([Set(znodes.CONTROLLER_EPOCH, str(before + 1).encode())])
        assert await create(one, "t", (1, 2, 3)) is ErrorCode.NONE
        now = [b.controller.controller_epoch for b in cluster.all() if b.controller.is_active]
        assert now and now[0] > before + 1, "the write had to wait for a controller that may"

    play(story)


def led_elsewhere(count: int, astray: int) -> World:
    """`count` partitions prefer broker 1, and broker 2 leads `astray` of them."""
    world = World()
    for broker_id in (1, 2):
        world.up(broker_id)
    world.create("t", *[(2, 1)] * astray, *[(1, 2)] * (count - astray))
    targets = {("t", index): (1, 2) for index in range(astray)}
    world.ask(lambda token: Reassign(token, targets))
    assert [world.partition("t", i).leader for i in range(astray)] == [2] * astray
    return world


@pytest.mark.parametrize(("astray", "moved"), [(1, False), (2, True)])
def test_leaders_go_home_when_more_than_a_tenth_is_astray(astray: int, moved: bool) -> None:
    world = led_elsewhere(10, astray)
    world.handle(AutoPreferredLeaderElection())
    leaders = [world.partition("t", i).leader for i in range(astray)]
    assert leaders == [1 if moved else 2] * astray
    world.close()


def test_partitions_that_move_are_not_balanced() -> None:
    world = led_elsewhere(4, 2)
    world.up(3)
    world.ask(lambda token: Reassign(token, {("t", 0): (1, 3)}))
    world.handle(AutoPreferredLeaderElection())
    assert [world.partition("t", i).leader for i in (0, 1)] == [2, 1]
    world.close()


def test_a_worked_case_leaders_of_three_come_back_after_two_deaths() -> None:
    """Brokers 1 and 2 die and return: 3 leads all until leaders are balanced."""
    world = World()
    for broker_id in (1, 2, 3):
        world.up(broker_id)
    world.create("t", (1, 2, 3), (2, 3, 1), (3, 1, 2))
    for broker_id in (1, 2):
        world.down(broker_id)
    for broker_id in (1, 2):
        world.up(broker_id)
    for index in range(3):
        partition = world.partition("t", index)
        assert partition.leader == 3
        world.alter_isr(partition, (1, 2, 3))
    world.handle(AutoPreferredLeaderElection())
    assert [world.partition("t", i).leader for i in range(3)] == [1, 2, 3]
    world.close()


def test_internal_topics_do_not_grow() -> None:
    """The partition of a group depends on the number of partitions."""
    world = World()
    world.up(1)
    for name in ("__consumer_offsets", "__transaction_state"):
        world.create(name, (1,))
        growth = (PartitionGrowth(name, 2, None),)
        [result] = world.ask(lambda token, g=growth: CreatePartitions(token, g, False))
        assert result.error is ErrorCode.INVALID_REQUEST
        assert "cannot be changed" in (result.message or "")
    world.close()


def test_elections_of_unknown_partitions_leave_the_others_alone() -> None:
    world = World()
    world.up(1)
    world.create("t", (1,))
    asked = (("t", 0), ("u", 0))
    rows = world.ask(lambda token: ElectLeaders(token, False, asked))
    assert rows["t", 0][0] is ErrorCode.ELECTION_NOT_NEEDED
    assert rows["u", 0][0] is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    world.close()
