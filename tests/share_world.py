"""A broker whose share partitions are kept by a persister in memory, and members of one group."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import UUID

from headwater.client.connection import Connection, open_connection
from headwater.errors import KafkaError
from headwater.ports.authorizer import Authorizer
from headwater_broker.metadata.group_settings import GroupSettings
from headwater_broker.replica.share.ports import SharePartitionKey, ShareState
from share_member import Member
from share_persister import MemoryPersister
from solo_broker import SoloBroker
from unit.network.test_data_plane import batch, produce


class HeldPersister(MemoryPersister):
    """`gate` holds requests back; `failures` are raised by writes, one by one."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.gate.set()
        self.failures: list[KafkaError] = []
        self.asked = 0

    async def write(self, key: SharePartitionKey, state: ShareState) -> None:
        self.asked += 1
        await self.gate.wait()
        if self.failures:
            raise self.failures.pop(0)
        await super().write(key, state)


class ShareWorld:
    """A broker with topic "t", the persister, and members of group "g"."""

    def __init__(self, broker: SoloBroker, topic_id: UUID, persister: HeldPersister) -> None:
        self.broker = broker
        self.topic_id = topic_id
        self.persister = persister
        self.connections: list[Connection] = []
        self.settings = GroupSettings()

    @property
    def shares(self) -> Any:
        return self.broker.services.shares

    async def member(self, name: str = "a", **fields: Any) -> Member:
        connection = await open_connection("127.0.0.1", self.broker.port)
        self.connections.append(connection)
        return Member(connection, self.topic_id, member=name, **fields)

    async def produce(self, count: int = 1, *, size: int = 10, partition: int = 0) -> None:
        row = await produce(self.connections[0], "t", batch(count, size), partition=partition)
        assert row.error_code == 0

    def state(self, partition: int = 0) -> ShareState:
        return self.persister.states[SharePartitionKey("g", self.topic_id, partition)]

    async def load(self, member: Member) -> None:
        """Open the session, and wait until its share partitions are loaded."""
        await member.rows()
        await until(lambda: all(led.machine for led in self.shares) and len(self.shares))


async def until(holds: Callable[[], Any]) -> None:
    for _ in range(2_000):
        if holds():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it never came true")


def share(
    tmp_path: Path,
    story: Callable[[ShareWorld], Awaitable[None]],
    partitions: int = 1,
    authorizer: Authorizer | None = None,
    remote_log: Any = None,
    **settings: Any,
) -> None:
    async def run() -> None:
        broker, persister = SoloBroker(tmp_path), HeldPersister()
        broker.persister = persister
        broker.remote_log = remote_log
        broker.authorizer = authorizer or broker.authorizer
        broker.group_settings = lambda group_id: world.settings
        async with broker:
            topic_id = broker.create_topic("t", partitions)
            world = ShareWorld(broker, topic_id, persister)
            world.settings = GroupSettings(share_auto_offset_reset="earliest", **settings)
            for index in range(partitions):
                await persister.initialize(SharePartitionKey("g", topic_id, index), 1, -1)
            await asyncio.wait_for(story(world), 30)
            for connection in world.connections:
                connection.close()

    asyncio.run(run())
