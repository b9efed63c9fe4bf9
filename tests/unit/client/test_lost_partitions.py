"""`on_revoke` and `on_lost`: what the group takes back, and what is others' already
(KIP-429). In both group protocols."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater import Admin, Consumer, IllegalStateError, NewTopic, Producer, TopicPartition
from headwater.aio import AsyncConsumer
from headwater.client.blocking.cluster import BlockingCluster
from headwater.system import SystemClock
from headwater.wire.apis.k13_leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from headwater.wire.apis.k68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from whole_cluster import ServedCluster

LIMIT_S = 30.0
PROTOCOLS: dict[str, dict[str, Any]] = {
    "eager": {"heartbeat_interval_ms": 20, "partition_assignment_strategy": "range"},
    "cooperative": {
        "heartbeat_interval_ms": 20,
        "partition_assignment_strategy": "cooperative-sticky",
    },
    "consumer": {"group_protocol": "consumer"},
}


@pytest.fixture(scope="module")
def c(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedCluster]:
    properties = {
        "group_consumer_heartbeat_interval_ms": "20",
        "group_consumer_min_heartbeat_interval_ms": "20",
    }
    with ServedCluster(Path(tmp_path_factory.mktemp("lost")), 1, **properties) as cluster:
        yield cluster


def options_of(c: ServedCluster, group: str, protocol: str) -> dict[str, Any]:
    common = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
    return {"bootstrap_servers": c.bootstrap, "group_id": group, **common, **PROTOCOLS[protocol]}


def make(c: ServedCluster, topic: str) -> None:
    with Admin(c.bootstrap) as admin, Producer(c.bootstrap) as producer:
        admin.create_topics([NewTopic(topic, 2, 1)])
        for n in range(10):
            producer.send(topic, str(n), partition=n % 2)


def poll_until(consumer: Consumer, done: Callable[[], object]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not done():
        assert time.monotonic() < deadline
        consumer.poll(10)


def remove_member(c: ServedCluster, group: str, protocol: str) -> None:
    """Another process ends the membership of the group's only member, who does not know of it."""
    with Admin(c.bootstrap) as admin:
        (member,) = admin.describe_groups([group])[group].members
    cluster = BlockingCluster(
        *(c.bootstrap, SystemClock()), client_id="t", request_timeout_s=5, retry_timeout_s=10
    )
    try:
        if protocol == "consumer":
            beat = ConsumerGroupHeartbeatRequest(
                group_id=group, member_id=member.member_id, member_epoch=-1
            )
            done = cluster.ask_any(lambda one: one.call(beat, ConsumerGroupHeartbeatResponse))
            assert done.error_code == 0
        else:
            row = MemberIdentity(member_id=member.member_id)
            leave = LeaveGroupRequest(group_id=group, members=(row,))
            left = cluster.ask_any(lambda one: one.call(leave, LeaveGroupResponse))
            assert left.error_code == left.members[0].error_code == 0
    finally:
        cluster.close()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_lost_partitions_are_told_apart_from_revoked_ones(c: ServedCluster, protocol: str) -> None:
    topic = f"lost-{protocol}"
    make(c, topic)
    story: list[tuple[str, list[TopicPartition]]] = []
    places = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    with Consumer(**options_of(c, topic, protocol)) as consumer:
        consumer.subscribe(
            topic,
            on_assign=lambda tps: story.append(("assign", sorted(tps))),
            on_revoke=lambda tps: story.append(("revoke", sorted(tps))),
            on_lost=lambda tps: story.append(("lost", sorted(tps))),
        )
        poll_until(consumer, lambda: consumer.assignment() == places)
        remove_member(c, topic, protocol)
        poll_until(consumer, lambda: len(story) >= 3)
        assert story == [("assign", places), ("lost", places), ("assign", places)]
    assert story[3:] == [("revoke", places)], "close gives them up in order"


def test_without_on_lost_partitions_are_revoked(c: ServedCluster) -> None:
    make(c, "plain")
    story: list[str] = []
    with Consumer(**options_of(c, "plain", "eager")) as consumer:
        consumer.subscribe("plain", on_revoke=lambda _: story.append("revoke"))
        poll_until(consumer, consumer.assignment)
        remove_member(c, "plain", "eager")
        poll_until(consumer, lambda: story)
        poll_until(consumer, consumer.assignment)
        consumer.unsubscribe()
        assert story == ["revoke", "revoke"]
    assert story == ["revoke", "revoke"], "nothing was left to give up"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_last_listener_commits(c: ServedCluster, protocol: str) -> None:
    topic = f"last-{protocol}"
    make(c, topic)
    read: list[object] = []
    with Consumer(**options_of(c, topic, protocol)) as consumer:
        consumer.subscribe(topic, on_revoke=lambda _: consumer.commit())
        while len(read) < 10:
            read += [r for rows in consumer.poll(100).values() for r in rows]
    with Admin(c.bootstrap) as admin:
        assert {at.offset for at in admin.list_group_offsets(topic).values()} == {5}


def test_an_error_of_the_last_listener_leaves_the_group_all_the_same(c: ServedCluster) -> None:
    make(c, "broken")
    consumer = Consumer(**options_of(c, "broken", "eager"))

    def broken(_: list[TopicPartition]) -> None:
        raise RuntimeError("the listener's own")

    consumer.subscribe("broken", on_revoke=broken)
    poll_until(consumer, consumer.assignment)
    with pytest.raises(RuntimeError, match="the listener's own"):
        consumer.close()
    with Admin(c.bootstrap) as admin:
        assert admin.describe_groups(["broken"])["broken"].members == ()


@pytest.mark.parametrize("protocol", ["cooperative", "consumer"])
def test_the_async_face_awaits_its_last_listener(c: ServedCluster, protocol: str) -> None:
    topic = f"aio-{protocol}"
    make(c, topic)

    async def work() -> None:
        story: list[str] = []
        async with AsyncConsumer(**options_of(c, topic, protocol)) as consumer:

            async def on_revoke(_: list[TopicPartition]) -> None:
                with pytest.raises(IllegalStateError, match="a listener cannot poll"):
                    await consumer.getmany()
                await consumer.commit()
                story.append("revoke")

            async def on_lost(_: list[TopicPartition]) -> None:
                story.append("lost")

            await consumer.subscribe(topic, on_revoke=on_revoke, on_lost=on_lost)
            while not consumer.assignment():
                await consumer.getmany(20)
            await asyncio.to_thread(remove_member, c, topic, protocol)
            while story != ["lost"]:
                await consumer.getmany(20)
            count = 0
            while count < 10:
                count += len(await consumer.getmany(20))
        assert story == ["lost", "revoke"]

    asyncio.run(asyncio.wait_for(work(), 2 * LIMIT_S))
    with Admin(c.bootstrap) as admin:
        assert {at.offset for at in admin.list_group_offsets(topic).values()} == {5}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_listener_that_raises_or_unsubscribes_leaves_nothing(
    c: ServedCluster, protocol: str
) -> None:
    topic = f"odd-{protocol}"
    make(c, topic)
    calls: list[str] = []
    with Consumer(**options_of(c, topic, protocol)) as consumer:

        def raising(_: list[TopicPartition]) -> None:
            raise RuntimeError("the listener's own")

        consumer.subscribe(topic, on_revoke=raising)
        poll_until(consumer, consumer.assignment)
        with pytest.raises(RuntimeError, match="the listener's own"):
            consumer.unsubscribe()
        assert consumer.assignment() == []
        with pytest.raises(IllegalStateError, match="nothing to poll"):
            consumer.poll()

        def unsubscribing(_: list[TopicPartition]) -> None:
            calls.append("revoke")
            consumer.unsubscribe()

        consumer.subscribe(topic, on_revoke=unsubscribing)
        poll_until(consumer, consumer.assignment)
    assert calls == ["revoke"]
    assert members_of(c, topic) == 0


def members_of(c: ServedCluster, group: str) -> int:
    with Admin(c.bootstrap) as admin:
        return len(admin.describe_groups([group])[group].members)


@pytest.mark.parametrize("protocol", ["eager", "cooperative"])
def test_an_assignment_of_a_lost_membership_is_not_taken(c: ServedCluster, protocol: str) -> None:
    """The member is removed between its join and the poll that would take the assignment."""
    topic = f"dead-{protocol}"
    make(c, topic)
    story: list[tuple[str, int]] = []
    with Consumer(**options_of(c, topic, protocol)) as consumer:
        consumer.subscribe(
            topic,
            on_assign=lambda tps: story.append(("assign", len(tps))),
            on_revoke=lambda tps: story.append(("revoke", len(tps))),
            on_lost=lambda tps: story.append(("lost", len(tps))),
        )
        consumer.poll(0)  # begins to join
        deadline = time.monotonic() + LIMIT_S
        while not members_of(c, topic) or consumer.statistics().rebalances == 0:
            assert time.monotonic() < deadline
        assert consumer.group_metadata().generation_id > 0
        remove_member(c, topic, protocol)
        while consumer.group_metadata().generation_id > 0:
            assert time.monotonic() < deadline
        poll_until(consumer, consumer.assignment)
        assert story == [("assign", 2)], "only that of the second membership"
        assert members_of(c, topic) == 1


def test_the_async_face_leaves_though_a_rebalance_runs(c: ServedCluster) -> None:
    topic = "aio-busy"
    make(c, topic)

    async def work() -> None:
        begun, go_on = asyncio.Event(), asyncio.Event()
        async with AsyncConsumer(**options_of(c, topic, "consumer")) as consumer:

            async def on_assign(_: list[TopicPartition]) -> None:
                begun.set()
                await go_on.wait()

            await consumer.subscribe(topic, on_assign=on_assign)
            reading = asyncio.create_task(consumer.getmany(20_000))
            await begun.wait()
            leaving = asyncio.create_task(consumer.unsubscribe())
            await asyncio.sleep(0)
            go_on.set()
            await leaving
            reading.cancel()
            assert await asyncio.to_thread(members_of, c, topic) == 0

    asyncio.run(asyncio.wait_for(work(), 2 * LIMIT_S))


def test_an_async_listener_may_unsubscribe(c: ServedCluster) -> None:
    topic = "aio-inside"
    make(c, topic)

    async def work() -> None:
        left: list[bool] = []
        async with AsyncConsumer(**options_of(c, topic, "consumer")) as consumer:

            async def on_assign(_: list[TopicPartition]) -> None:
                if not left:
                    left.append(True)
                    await consumer.unsubscribe()

            await consumer.subscribe(topic, on_assign=on_assign)
            while not left:
                await consumer.getmany(20)
            assert consumer.assignment() == []

    asyncio.run(asyncio.wait_for(work(), 2 * LIMIT_S))
    assert members_of(c, topic) == 0
