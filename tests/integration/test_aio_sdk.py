"""`headwater.aio` against three real brokers: groups, exactly once from topic to topic, letters."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine
from typing import Any

import pytest

from headwater import DeadLetter, NewTopic, Topic
from headwater.aio import AsyncAdmin, AsyncConsumer, AsyncProducer
from headwater.serializers import JsonSerializer
from integration.cluster import LocalCluster

pytestmark = pytest.mark.integration
LIMIT_S = 60.0
COUNT = 2000


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, LIMIT_S))


async def make(cluster: LocalCluster, *topics: str) -> None:
    async with AsyncAdmin(cluster.bootstrap) as admin:
        await admin.create_topics([NewTopic(topic, 4, 3) for topic in topics])


async def collect(cluster: LocalCluster, topic: str, group: str, count: int) -> Counter[bytes]:
    """The values of the first `count` visible records."""
    found: Counter[bytes] = Counter()
    async with AsyncConsumer(
        topic,
        bootstrap_servers=cluster.bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        consumer_timeout_ms=5000,
    ) as consumer:
        async for record in consumer:
            found[record.value or b""] += 1
            if found.total() == count:
                break
    return found


@pytest.mark.parametrize("engine", ["loop", "thread"])
def test_many_tasks_send_and_a_group_reads(shared_cluster: LocalCluster, engine: Any) -> None:
    topic = f"aio-many-{engine}"

    async def work() -> None:
        await make(shared_cluster, topic)
        async with AsyncProducer(
            shared_cluster.bootstrap, engine=engine, buffer_memory=200_000
        ) as producer:

            async def send(task: int) -> None:
                for n in range(COUNT // 20):
                    await producer.send(topic, f"{task}-{n}" + "x" * 500, key=str(task))

            tasks = [asyncio.create_task(send(task)) for task in range(20)]
            tasks[7].cancel()
            await asyncio.wait(tasks)
            await producer.flush(30_000)
            assert producer.unacked() == []
            sent = producer.statistics().records_sent
        assert sent >= COUNT - COUNT // 20
        members = [
            AsyncConsumer(
                topic,
                bootstrap_servers=shared_cluster.bootstrap,
                group_id=topic,
                auto_offset_reset="earliest",
                engine=engine,
                heartbeat_interval_ms=100,
            )
            for _ in range(2)
        ]
        seen: set[tuple[int, int]] = set()
        async with members[0], members[1]:
            while len(seen) < sent:
                for rows in await asyncio.gather(*(m.getmany(200) for m in members)):
                    seen |= {(row.partition, row.offset) for row in rows}
            assert len(seen) == sent

    run(work())


def test_exactly_once_from_topic_to_topic(shared_cluster: LocalCluster) -> None:
    async def work() -> None:
        await make(shared_cluster, "aio-in", "aio-out")
        async with AsyncProducer(shared_cluster.bootstrap) as producer:
            for n in range(200):
                await producer.send("aio-in", str(n))
        handled = 0
        while handled < 200:  # each round is cut by an error: its transaction is aborted
            async with (
                AsyncConsumer(
                    "aio-in",
                    bootstrap_servers=shared_cluster.bootstrap,
                    group_id="aio-copy",
                    auto_offset_reset="earliest",
                    enable_auto_commit=False,
                    max_poll_records=50,
                ) as consumer,
                AsyncProducer(shared_cluster.bootstrap, transactional_id="aio-copy") as out,
            ):
                rows = await consumer.getmany(10_000)
                async with out.transaction():
                    for row in rows:
                        await out.send("aio-out", row.value)
                    await out.send_offsets(None, consumer)
                handled += len(rows)
                with pytest.raises(KeyError):
                    async with out.transaction():
                        await out.send("aio-out", b"aborted")
                        raise KeyError("the program's own")
        found = await collect(shared_cluster, "aio-out", "aio-check", 200)
        assert found == Counter({str(n).encode(): 1 for n in range(200)})

    run(work())


def test_dead_letters(shared_cluster: LocalCluster) -> None:
    async def work() -> None:
        await make(shared_cluster, "aio-typed", "aio-dead")
        topic = Topic("aio-typed", JsonSerializer())
        async with AsyncProducer(shared_cluster.bootstrap) as producer:
            await producer.send(topic, {"n": 1})
            await producer.send("aio-typed", b"{bad")
        async with AsyncConsumer(
            bootstrap_servers=shared_cluster.bootstrap,
            group_id="aio-typed",
            auto_offset_reset="earliest",
            consumer_timeout_ms=1000,
        ) as consumer:
            reader = await consumer.typed(topic, on_undecodable=DeadLetter("aio-dead"))
            assert [row.value async for row in reader] == [{"n": 1}]
        assert await collect(shared_cluster, "aio-dead", "aio-dead", 1) == Counter({b"{bad": 1})

    run(work())
