"""The asyncio clients over the loss of a leader: each record once, in order, and readers go on."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from headwater import NewTopic
from headwater.aio import AsyncAdmin, AsyncConsumer, AsyncProducer
from whole_cluster import ServedCluster

LIMIT_S = 60.0
COUNT = 400


@pytest.mark.parametrize("engine", ["loop", "thread"])
def test_records_and_a_group_over_the_loss_of_a_leader(tmp_path: Path, engine: Any) -> None:
    async def work(cluster: ServedCluster) -> None:
        async with AsyncAdmin(cluster.bootstrap) as admin:
            await admin.create_topics([NewTopic("t", 1, 3)])
        async with (
            AsyncProducer(cluster.bootstrap, engine=engine, linger_ms=0) as producer,
            AsyncConsumer(
                "t",
                bootstrap_servers=cluster.bootstrap,
                group_id="g",
                auto_offset_reset="earliest",
                engine=engine,
            ) as consumer,
        ):
            found: list[bytes | None] = []

            async def read_on() -> None:
                async for record in consumer:
                    found.append(record.value)
                    if len(found) == COUNT:
                        return

            reading = asyncio.create_task(read_on())
            sent = []
            for number in range(COUNT):
                if number == COUNT // 2:
                    while not found:
                        await asyncio.sleep(0.001)
                    leader = cluster.state("t").leader_id
                    await asyncio.to_thread(cluster.stop, leader)
                sent.append(await producer.send("t", str(number)))
            offsets = [(await delivery).offset for delivery in sent]
            await reading
            assert offsets == list(range(COUNT))
            assert found == [str(number).encode() for number in range(COUNT)]

    with ServedCluster(tmp_path, 3) as cluster:
        asyncio.run(asyncio.wait_for(work(cluster), LIMIT_S))
