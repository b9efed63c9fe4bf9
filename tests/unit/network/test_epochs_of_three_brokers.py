"""Epoch transactions over three brokers: leaders elsewhere, and a coordinator that moves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from headwater.client.connection import open_connection
from headwater.errors import ErrorCode
from headwater.topic_names import TRANSACTION_TOPIC
from headwater.wire.apis.k10001_join_epoch import JoinEpochResponse
from headwater.wire.epoch_values import EpochStatus
from replica_trio import BROKERS, Trio
from unit.api.epoch_requests import NEWER_RUN, Writer
from unit.network.test_transactions_of_three_brokers import Cluster, Producer

E = ErrorCode


class EpochCluster(Cluster):
    """One partition of the transaction topic, which tests move from broker to broker."""

    async def start(self) -> None:
        self.log_id = self.trio.create(TRANSACTION_TOPIC, 1)
        self.topic_id = self.trio.create("t", 3)
        for broker_id in BROKERS:
            port = self.trio.brokers[broker_id].port
            self.to[broker_id] = await open_connection("127.0.0.1", port)
        self.coordinator = BROKERS[0]

    def move_coordinator(self, broker_id: int) -> None:
        self.trio.elect(self.log_id, broker_id)
        self.coordinator = broker_id

    def writer(self, ticket: int = 1, **changes: object) -> Writer:
        return Writer(self.to[self.coordinator], ticket).but(**changes)

    async def write(self, joined: JoinEpochResponse, index: int) -> ErrorCode:
        producer = Producer(joined.producer_id, joined.producer_epoch)
        return await self.send(producer, index, transactional_id=joined.transactional_id)


def play(tmp_path: Path, story: Callable[[EpochCluster], Awaitable[None]]) -> None:
    async def run() -> None:
        async with Trio(tmp_path) as trio:
            cluster = EpochCluster(trio)
            await cluster.start()
            await asyncio.wait_for(story(cluster), 60)
            cluster.close()

    asyncio.run(run())


async def written(c: EpochCluster) -> list[JoinEpochResponse]:
    """Three tasks that have written to the three leaders."""
    joined = []
    for index in range(3):
        one = await c.writer().join(index, index)
        while one.error_code:  # the producer ids' first block, the shard's load
            one = await c.writer().join(index, index)
        assert one.status == EpochStatus.OPEN
        assert await c.write(one, index) is E.NONE
        joined.append(one)
    return joined


def test_an_epoch_commits_on_every_leader_though_its_coordinator_moves(tmp_path: Path) -> None:
    async def story(c: EpochCluster) -> None:
        joined = await written(c)
        assert [await c.latest(BROKERS[index], index) for index in range(3)] == [0, 0, 0]
        c.move_coordinator(2)
        done = await c.writer().commit(*joined)
        assert (done.error_code, done.status, done.is_complete) == (
            E.NONE, EpochStatus.COMMITTED, True,
        )  # fmt: skip
        for index in range(3):
            for broker_id in BROKERS:
                assert await c.read(broker_id, index, 2) == ([0], [])
        c.move_coordinator(3)
        again = await c.writer().commit(*joined)
        assert (again.status, again.is_complete) == (EpochStatus.COMMITTED, True)

    play(tmp_path, story)


def test_a_newer_run_on_a_new_coordinator_aborts_everywhere(tmp_path: Path) -> None:
    async def story(c: EpochCluster) -> None:
        joined = await written(c)
        c.move_coordinator(3)
        newer = c.writer(2, run=NEWER_RUN)
        assert (await newer.join()).status == EpochStatus.OPEN
        for index in range(3):
            assert await c.read(BROKERS[index], index, 2) == ([0], [0])
            assert await c.write(joined[index], index) is E.INVALID_PRODUCER_EPOCH
        assert (await c.writer().commit(*joined)).status == EpochStatus.FENCED

    play(tmp_path, story)


def test_a_prepared_epoch_outlives_its_coordinator(tmp_path: Path) -> None:
    async def story(c: EpochCluster) -> None:
        joined = await written(c)
        assert (await c.writer().prepare(*joined)).status == EpochStatus.PREPARED
        c.move_coordinator(2)
        assert [await c.latest(BROKERS[index], index) for index in range(3)] == [0, 0, 0]
        newer = c.writer(2, run=NEWER_RUN)
        assert (await newer.join()).status == EpochStatus.PREPARED
        assert (await newer.commit(is_prepared=True)).status == EpochStatus.COMMITTED
        for index in range(3):
            assert await c.read(BROKERS[index], index, 2) == ([0], [])

    play(tmp_path, story)
