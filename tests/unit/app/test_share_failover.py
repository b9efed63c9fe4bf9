"""Share groups over three brokers and the cluster's own share coordinators, as leaders go."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import UUID

from headwater.client.connection import Connection, open_connection
from headwater.errors import ErrorCode
from headwater.topic_names import SHARE_STATE_TOPIC
from replica_trio import Trio
from share_member import Member, code_of, rows_of
from share_persister import share_partition
from unit.network.test_data_plane import batch, produce

ACCEPT, RELEASE = 1, 2


class Failover:
    """Topic "t" and the share coordinators' topic, one partition each, led by broker 1."""

    def __init__(self, trio: Trio) -> None:
        self.trio = trio
        self.states_id = trio.create(SHARE_STATE_TOPIC, 1)
        self.topic_id: UUID = trio.create("t", 1)
        self.key = share_partition(self.topic_id, 0, "g")
        self.connections: list[Connection] = []

    async def begin(self, records: int) -> None:
        await self.trio.brokers[1].services.persister.initialize(self.key, 1, 0)
        connection = await self.connect(1)
        assert (await produce(connection, "t", batch(records), -1)).error_code == 0

    async def connect(self, broker_id: int) -> Connection:
        connection = await open_connection("127.0.0.1", self.trio.brokers[broker_id].port)
        self.connections.append(connection)
        return connection

    async def member(self, broker_id: int, name: str = "a") -> Member:
        return Member(await self.connect(broker_id), self.topic_id, member=name)


def fail_over(tmp_path: Path, story: Callable[[Failover], Awaitable[Any]]) -> None:
    async def run() -> None:
        async with Trio(tmp_path) as trio:
            failover = Failover(trio)
            await asyncio.wait_for(story(failover), 60)
            for connection in failover.connections:
                connection.close()

    asyncio.run(run())


def test_what_was_accepted_stays_so_and_the_rest_is_delivered_again(tmp_path: Path) -> None:
    """The broker that leads both the partition and the share coordinator is lost."""

    async def story(world: Failover) -> None:
        await world.begin(6)
        a = await world.member(1)
        assert await a.rows(max_wait_ms=20_000) == [(0, 5, 1)]
        assert code_of(await a.acknowledge((ACCEPT, 0, 1), (RELEASE, 4, 4))) == 0
        await world.trio.stop(1)
        world.trio.elect(world.states_id, 2, isr=(2, 3))
        world.trio.elect(world.topic_id, 3, isr=(2, 3))
        b = await world.member(3, "b")
        assert await b.rows(max_wait_ms=20_000) == [(2, 3, 1), (4, 4, 2), (5, 5, 1)]
        assert code_of(await b.acknowledge((ACCEPT, 2, 5))) == 0
        summary = await world.trio.brokers[2].services.persister.read_summary(world.key)
        assert summary.delivery_complete_count == 4

    fail_over(tmp_path, story)


def test_a_deposed_leader_accepts_nothing_any_more(tmp_path: Path) -> None:
    """It does not know that it is deposed: its successor's read fences it."""

    async def story(world: Failover) -> None:
        await world.begin(4)
        a = await world.member(1)
        assert await a.rows(max_wait_ms=20_000) == [(0, 3, 1)]
        world.trio.elect(world.topic_id, 2, only=(2, 3))
        b = await world.member(2, "b")
        assert await b.rows(max_wait_ms=20_000) == [(0, 3, 1)]
        code = code_of(await a.acknowledge((ACCEPT, 0, 3)))
        assert code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert code_of(await b.acknowledge((ACCEPT, 0, 3))) == 0
        (row,) = rows_of(await a.fetch(max_wait_ms=1_000)) or [None]
        assert row is None or row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    fail_over(tmp_path, story)


def test_an_acknowledgement_waits_for_the_next_share_coordinator(tmp_path: Path) -> None:
    async def story(world: Failover) -> None:
        await world.begin(4)
        world.trio.elect(world.topic_id, 3)
        a = await world.member(3)
        assert await a.rows(max_wait_ms=20_000) == [(0, 3, 1)]
        await world.trio.stop(1)
        answer = asyncio.create_task(a.acknowledge((ACCEPT, 0, 3)))
        await asyncio.sleep(0.1)
        assert not answer.done()
        world.trio.elect(world.states_id, 2, isr=(2, 3))
        world.trio.elect(world.topic_id, 3, isr=(2, 3), only=())
        assert code_of(await answer) == 0

    fail_over(tmp_path, story)
