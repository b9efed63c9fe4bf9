"""`AsyncConsumer` and `AsyncAdmin`: cancellation loses no record, groups, listeners, the end."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater import (
    ClosedError,
    IllegalStateError,
    NewTopic,
    Producer,
    TopicAlreadyExistsError,
    TopicPartition,
    UnknownTopicOrPartitionError,
    UsageError,
)
from headwater.aio import AsyncAdmin, AsyncConsumer, AsyncProducer
from unit.client.served_broker import wait_until
from whole_cluster import ServedCluster

LIMIT_S = 30.0
ENGINES = ["loop", "thread"]


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run a test's coroutine, which must end."""
    asyncio.run(asyncio.wait_for(work, 2 * LIMIT_S))


@pytest.fixture(scope="module")
def c(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedCluster]:
    with ServedCluster(Path(tmp_path_factory.mktemp("aio")), 1) as cluster:
        yield cluster


async def make(c: ServedCluster, topic: str, count: int, partitions: int = 1) -> None:
    """A topic with `count` records, b"0" to the last, in turn in its partitions."""
    async with AsyncAdmin(c.bootstrap) as admin:
        await admin.create_topics([NewTopic(topic, partitions, 1)])
    async with AsyncProducer(c.bootstrap) as producer:
        for n in range(count):
            await producer.send(topic, str(n), partition=n % partitions)


def reader(c: ServedCluster, *topics: str, **options: Any) -> AsyncConsumer:
    return AsyncConsumer(
        *topics, bootstrap_servers=c.bootstrap, **{"auto_offset_reset": "earliest", **options}
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_a_cancelled_read_loses_no_record(c: ServedCluster, engine: Any) -> None:
    topic = f"cancelled-{engine}"

    async def work() -> None:
        await make(c, topic, 3000)
        found: list[bytes | None] = []
        async with reader(c, group_id=f"g-{engine}", max_poll_records=7, engine=engine) as consumer:
            await consumer.subscribe(topic)

            async def read_on() -> None:
                async for record in consumer:
                    found.append(record.value)
                    if len(found) == 3000:
                        return

            turns = 0
            while len(found) < 3000:
                task = asyncio.create_task(read_on())
                for _ in range(turns % 5):
                    await asyncio.sleep(0)
                turns += 1
                if turns % 2:
                    task.cancel()
                await asyncio.wait([task])
                one = None if len(found) == 3000 else await consumer.getone(0)
                found += [] if one is None else [one.value]
            assert found == [str(n).encode() for n in range(3000)]
            assert consumer.statistics().records_consumed == 3000
            await consumer.commit()
            place = TopicPartition(topic, 0)
            assert (await consumer.committed(place))[place].offset == 3000

    run(work())


def test_a_task_that_only_reads_leaves_the_loop_to_others(c: ServedCluster) -> None:
    async def work() -> None:
        await make(c, "fair", 2000)
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        async with reader(c, "fair", max_poll_records=100) as consumer:
            consumer.seek_to_beginning()
            await anext(consumer)
            task = asyncio.create_task(other())
            before = turns
            for _ in range(1999):
                await anext(consumer)
            task.cancel()
            assert turns - before >= 15

    run(work())


def test_what_an_iteration_has_left_is_not_committed(c: ServedCluster) -> None:
    async def work() -> None:
        await make(c, "left", 10)
        place = TopicPartition("left", 0)
        async with reader(c, "left", group_id="left", enable_auto_commit=False) as consumer:
            async for record in consumer:
                if record.value == b"3":
                    break
            assert consumer.positions()[place].offset == 4
            await consumer.commit()
            assert [r.value for r in await consumer.getmany()] == [
                str(n).encode() for n in (4, 5, 6, 7, 8, 9)
            ]
        async with reader(c, "left", group_id="left") as consumer:
            assert (await anext(consumer)).offset == 4

    run(work())


@pytest.mark.parametrize("engine", ENGINES)
def test_members_share_partitions_and_listeners_are_awaited(c: ServedCluster, engine: Any) -> None:
    topic = f"shared-{engine}"

    async def work() -> None:
        await make(c, topic, 0, partitions=2)
        told: list[tuple[str, list[TopicPartition]]] = []
        options: Any = {"group_id": topic, "engine": engine, "heartbeat_interval_ms": 50}
        async with reader(c, **options) as one, reader(c, topic, **options) as two:

            async def on_assign(partitions: list[TopicPartition]) -> None:
                with pytest.raises(IllegalStateError, match="a listener cannot poll"):
                    await one.getmany()
                await one.commit()
                told.append(("assign", partitions))

            async def on_revoke(partitions: list[TopicPartition]) -> None:
                told.append(("revoke", partitions))

            await one.subscribe(topic, on_assign=on_assign, on_revoke=on_revoke)
            while len(one.assignment()) != 1 or len(two.assignment()) != 1:
                await asyncio.gather(one.getmany(20), two.getmany(20))
            assert {*one.assignment(), *two.assignment()} == {(topic, 0), (topic, 1)}
            assert told[0][0] == "assign"
            await two.aclose()
            while len(one.assignment()) < 2:
                await one.getmany(20)

    run(work())


def test_a_busy_loop_does_not_stop_an_engine_on_a_thread(c: ServedCluster) -> None:
    async def work() -> None:
        await make(c, "busy", 1)
        async with reader(c, "busy", group_id="busy", engine="thread") as consumer:
            await anext(consumer)
            before = consumer.statistics().bytes_fetched
            with Producer(c.bootstrap) as producer:  # from here on nothing is awaited
                producer.send("busy", b"next").result(LIMIT_S)
            wait_until(lambda: consumer.statistics().bytes_fetched > before)
            assert (await anext(consumer)).value == b"next"

    run(work())


def test_max_records_bounds_what_several_partitions_give(c: ServedCluster) -> None:
    async def work() -> None:
        await make(c, "bounded", 10, partitions=2)
        async with reader(c, "bounded") as consumer:
            while [p.buffered_bytes > 0 for p in consumer.statistics().partitions.values()] != [
                True,
                True,
            ]:
                await asyncio.sleep(0.01)
            assert len(await consumer.getmany(5000, max_records=7)) == 7
            assert len(await consumer.getmany(5000, max_records=7)) == 3

    run(work())


@pytest.mark.parametrize("engine", ENGINES)
def test_positions_offsets_and_pauses(c: ServedCluster, engine: Any) -> None:
    topic = f"positions-{engine}"

    async def work() -> None:
        await make(c, topic, 10, partitions=2)
        zero, one = TopicPartition(topic, 0), TopicPartition(topic, 1)
        async with reader(c, engine=engine) as consumer:
            with pytest.raises(IllegalStateError, match="nothing to poll"):
                await consumer.getmany()
            with pytest.raises(UnknownTopicOrPartitionError):
                await consumer.assign([(topic, 2)])
            await consumer.assign([zero, one])
            consumer.seek_to_end(zero)
            assert await consumer.position(zero) == 5
            consumer.seek(zero, 2)
            consumer.pause(one)
            first = await consumer.getmany(5000)
            assert [r.offset for r in first] == [2, 3, 4] and first[0].partition == 0
            assert await consumer.getmany(10) == []
            consumer.resume(one)
            assert len(await consumer.getmany(5000, max_records=2)) == 2
            assert await consumer.beginning_offsets([zero]) == {zero: 0}
            assert await consumer.end_offsets([zero, one]) == {zero: 5, one: 5}
            assert (await consumer.offsets_for_times({zero: 0}))[zero] is not None
            consumer.seek_to_beginning(one)
            assert (await consumer.poll_arrow(timeout_ms=5000)).num_rows == 5
            assert await consumer.partitions_for(topic) == 2
            assert consumer.metrics()["assigned-partitions"] == 2

    run(work())


def test_an_iteration_ends_at_its_time_limit_and_at_the_close(c: ServedCluster) -> None:
    async def work() -> None:
        await make(c, "ends", 2)
        async with reader(c, "ends", consumer_timeout_ms=100) as consumer:
            consumer.seek_to_beginning()
            assert [r.value async for r in consumer] == [b"0", b"1"]
            assert await consumer.getone(0) is None
        consumer = reader(c, "ends", group_id="ends")
        await consumer.start()

        async def read_on() -> int:
            return len([r async for r in consumer])

        task = asyncio.create_task(read_on())
        while not consumer.statistics().records_consumed:
            await asyncio.sleep(0.001)
        await consumer.aclose()
        assert await task == 2
        with pytest.raises(ClosedError):
            await consumer.getmany()

    run(work())


def test_a_rebalance_that_its_task_did_not_see_the_end_of_is_applied(c: ServedCluster) -> None:
    async def work() -> None:
        await make(c, "half", 3)
        entered, go_on = asyncio.Event(), asyncio.Event()
        async with reader(c, group_id="half") as consumer:

            async def on_assign(_: list[TopicPartition]) -> None:
                entered.set()
                await go_on.wait()

            await consumer.subscribe("half", on_assign=on_assign)
            task = asyncio.create_task(consumer.getone())
            await entered.wait()
            task.cancel()
            await asyncio.wait([task])
            go_on.set()
            record = await consumer.getone()
            assert record is not None and record.offset == 0
            assert consumer.statistics().rebalances == 1

    run(work())


def test_admin_verbs_are_coroutines(c: ServedCluster) -> None:
    async def work() -> None:
        async with AsyncAdmin(c.bootstrap) as admin:
            await admin.create_topics([NewTopic("made", 3, 1)])
            with pytest.raises(TopicAlreadyExistsError):
                await admin.create_topics(["made"])
            with pytest.raises(UsageError):
                await admin.delete_topics("made")
            assert "made" in await admin.list_topics()
            assert len((await admin.describe_topics(["made"]))["made"].partitions) == 3
            await admin.alter_configs("topic", "made", {"retention.ms": "1000"})
            configs, cluster = await asyncio.gather(
                admin.describe_configs("topic", "made"), admin.describe_cluster()
            )
            assert configs["retention.ms"].value == "1000" and len(cluster.brokers) == 1
            await admin.delete_topics(["made"])

    run(work())
