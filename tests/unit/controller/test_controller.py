"""The controller service with several brokers on a store in memory, with real messages."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from uuid import UUID

import pytest

from headwater.errors import ErrorCode
from headwater.wire.apis.k19_create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from headwater.wire.apis.k20_delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from headwater.wire.control import AlterPartitionItem, AlterPartitionRequest, IsrMember
from headwater.wire.schema import decode, encode
from headwater_broker.controller.timings import ControllerTimings
from unit.controller.brokers_in_memory import Cluster, FakeBroker, until


def run(work: Coroutine[object, object, None]) -> None:
    asyncio.run(work)


async def create(broker: FakeBroker, name: str, *replicas: tuple[int, ...]) -> ErrorCode:
    rows = tuple(
        CreatableReplicaAssignment(partition_index=i, broker_ids=r) for i, r in enumerate(replicas)
    )
    topic = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=rows)
    body = encode(CreateTopicsRequest(topics=(topic,), timeout_ms=5000), 7)
    reply = decode(CreateTopicsResponse, 7, await broker.calls.forward(19, 7, body))
    return ErrorCode(reply.topics[0].error_code)


def leader(broker: FakeBroker, topic: str, partition: int = 0) -> int:
    state = broker.view.partition(topic, partition)
    return -2 if state is None else state.leader_id


def test_one_controller_is_elected_and_everybody_hears_of_it() -> None:
    async def story() -> None:
        async with Cluster(3) as cluster:
            active = [b.broker_id for b in cluster.all() if b.controller.is_active]
            assert len(active) == 1
            assert {b.view.controller_id for b in cluster.all()} == set(active)

    run(story())


def test_topic_creation_answers_with_visible_leaders() -> None:
    async def story() -> None:
        async with Cluster(3) as cluster:
            for number, broker in enumerate(cluster.all()):
                name = f"t{number}"
                assert await create(broker, name, (1, 2, 3), (2, 3, 1)) is ErrorCode.NONE
                assert [leader(b, name) for b in cluster.all()] == [1, 1, 1]
                assert [leader(b, name, 1) for b in cluster.all()] == [2, 2, 2]
            again = await create(cluster.brokers[2], "t0", (1,))
            assert again is ErrorCode.TOPIC_ALREADY_EXISTS

    run(story())


def test_a_dead_leader_is_replaced_by_an_isr_member() -> None:
    async def story() -> None:
        async with Cluster(3) as cluster:
            await create(cluster.brokers[1], "t", (1, 2, 3), (2, 3, 1), (3, 1, 2))
            for victim in (1, 2, 3):
                await cluster.kill(victim)
                left = cluster.all()
                await until(lambda b=left, v=victim: all(leader(x, "t", v - 1) != v for x in b))
                state = left[0].view.partition("t", victim - 1)
                assert state is not None
                assert victim not in state.isr
                await cluster.add(victim)
                await rejoin(cluster, "t", 3)

    run(story())


async def rejoin(cluster: Cluster, topic: str, count: int) -> None:
    """The leaders add every replica to the ISR, as after fetches up to the log end."""
    one = cluster.all()[0]
    for index in range(count):
        await until(lambda i=index: leader(one, topic, i) in cluster.brokers)
        await rejoin_partition(cluster.brokers[leader(one, topic, index)], topic, index)


async def rejoin_partition(lead: FakeBroker, topic: str, index: int) -> None:
    topic_id = lead.view.topics[topic].topic_id

    def is_told() -> bool:
        told = lead.replicas[topic_id, index]
        seen = lead.view.topics[topic].partitions[index]
        is_leader = told.leader_id == seen.leader_id == lead.broker_id
        return is_leader and told.partition_epoch >= seen.partition_epoch

    await until(is_told)
    state = lead.view.topics[topic].partitions[index]
    item = AlterPartitionItem(
        topic_id=topic_id,
        partition=index,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
        new_isr=tuple(IsrMember(broker_id=b) for b in state.replicas),
    )
    request = AlterPartitionRequest(
        broker_id=lead.broker_id, broker_epoch=lead.registration.broker_epoch, partitions=(item,)
    )
    reply = await lead.calls.alter_partition(request)
    assert reply.error_code == 0
    assert reply.partitions[0].error_code == 0, ErrorCode(reply.partitions[0].error_code)


def test_a_wiped_disk_never_wins_and_the_old_disk_brings_the_partition_back() -> None:
    async def story() -> None:
        async with Cluster(2) as cluster:
            await create(cluster.brokers[1], "t", (2, 1))
            await cluster.kill(1)
            two = cluster.brokers[2]
            await until(lambda: (s := two.view.partition("t", 0)) is not None and s.isr == (2,))
            await cluster.add(1)
            one = cluster.brokers[1]
            await cluster.kill(2)
            await until(lambda: leader(one, "t") == -1)
            wiped = await cluster.add(2, directory=UUID(int=77))
            await until(lambda: len(one.view.brokers) == 2 and len(wiped.view.brokers) == 2)
            state = one.view.partition("t", 0)
            assert state is not None
            assert (state.leader_id, state.isr) == (-1, (2,))
            assert "without directory" in state.offline_reason
            assert wiped.replicas == {}, "an empty replica was made"
            await cluster.kill(2)
            await cluster.add(2)
            await until(lambda: leader(one, "t") == 2)

    run(story())


def test_deletion_reaches_a_broker_that_was_away() -> None:
    async def story() -> None:
        async with Cluster(2) as cluster:
            await create(cluster.brokers[1], "t", (1, 2))
            two = await cluster.kill(2)
            one = cluster.brokers[1]
            await until(lambda: len(one.view.brokers) == 1)
            body = encode(
                DeleteTopicsRequest(topics=(DeleteTopicState(name="t"),), timeout_ms=1000), 6
            )
            reply = decode(DeleteTopicsResponse, 6, await one.calls.forward(20, 6, body))
            assert reply.responses[0].error_code == 0
            assert "t" not in one.view.topics
            assert one.stopped == [("t", 0, True)]
            assert await create(one, "t", (1,)) is ErrorCode.NONE
            del two
            back = await cluster.add(2)
            await until(lambda: back.stopped == [("t", 0, True)])
            await until(lambda: not any("/headwater/deletions/" in p for p in cluster.tree.paths()))
            assert leader(back, "t") == 1

    run(story())


def test_a_broker_that_does_not_answer_delays_no_other() -> None:
    timings = ControllerTimings(call_timeout_ms=1000, delivery_wait_s=0.05)

    async def story() -> None:
        async with Cluster(3, timings=timings) as cluster:
            active = cluster.controller()
            other, silent = (b for b in cluster.all() if b is not active)
            cluster.network.cut(silent.address)
            ids = (other.broker_id, silent.broker_id, active.broker_id)
            async with asyncio.timeout(0.9):
                for name in ("t", "u"):
                    assert await create(active, name, ids) is ErrorCode.NONE
                    assert leader(active, name) == leader(other, name) == ids[0]
            assert leader(silent, "t") == -2
            cluster.network.mend(silent.address)
            await until(lambda: leader(silent, "u") == leader(silent, "t") == ids[0])
            assert {s.topic for s in silent.replicas.values()} == {"t", "u"}

    run(story())


def test_a_store_that_is_away_does_not_keep_a_broker_from_stopping(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timings = ControllerTimings(resign_timeout_s=0.01)

    async def never(_path: str) -> None:
        await asyncio.Event().wait()

    async def story() -> None:
        async with Cluster(3, timings=timings) as cluster:
            victim = next(b for b in cluster.all() if b.controller.is_active)
            with monkeypatch.context() as patch:
                patch.setattr(victim.store, "get", never)
                async with asyncio.timeout(5):
                    await victim.controller.stop()

    run(story())


def test_brokers_that_stop_together_hand_nothing_over_to_each_other() -> None:
    async def story() -> None:
        async with Cluster(3) as cluster:
            await create(cluster.brokers[1], "t", (1, 2, 3), (2, 3, 1), (3, 1, 2))
            before = [leader(cluster.brokers[1], "t", i) for i in range(3)]
            asked = (b.calls.controlled_shutdown() for b in cluster.all())
            assert await asyncio.gather(*asked) == [0, 0, 0]
            assert [leader(cluster.brokers[1], "t", i) for i in range(3)] == before == [1, 2, 3]

    run(story())


def test_a_broker_that_stops_alone_hands_over() -> None:
    async def story() -> None:
        async with Cluster(3) as cluster:
            await create(cluster.brokers[1], "t", (1, 2), (2, 3))
            assert await cluster.brokers[2].calls.controlled_shutdown() == 0
            assert [leader(cluster.brokers[1], "t", i) for i in range(2)] == [1, 3]

    run(story())
