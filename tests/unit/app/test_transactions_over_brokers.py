"""Transactions over three brokers: markers to other leaders, coordinators and leaders that die."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from headwater.client.connection import Connection, open_connection
from headwater.errors import ErrorCode
from headwater.topic_names import TRANSACTION_TOPIC
from headwater.wire.apis import k10_find_coordinator as k10
from headwater.wire.apis import k19_create_topics as k19
from headwater.wire.apis import k22_init_producer_id as k22
from headwater.wire.apis import k26_end_txn as k26
from headwater_broker.coordinator.transaction.states import TransactionState
from unit.api.test_transactions_to_their_end import V2, write
from whole_cluster import WholeBroker, WholeCluster, until

E = ErrorCode
RETRIED = (E.NOT_COORDINATOR, E.COORDINATOR_NOT_AVAILABLE, E.COORDINATOR_LOAD_IN_PROGRESS,
           E.CONCURRENT_TRANSACTIONS)  # fmt: skip
WRITE_RETRIED = (E.NOT_LEADER_OR_FOLLOWER, E.NOT_ENOUGH_REPLICAS, *RETRIED, E.NETWORK_EXCEPTION)
PARTITIONS = 6


class Client:
    """Asks whoever coordinates or leads now, and asks again."""

    def __init__(self, cluster: WholeCluster) -> None:
        self.cluster = cluster
        self._open: dict[int, Connection] = {}

    async def to(self, broker_id: int) -> Connection:
        port = self.cluster.brokers[broker_id].port
        if port not in self._open:
            self._open[port] = await open_connection("127.0.0.1", port)
        return self._open[port]

    def close(self) -> None:
        for connection in self._open.values():
            connection.close()

    @property
    def any(self) -> WholeBroker:
        return next(iter(self.cluster.brokers.values()))

    async def create(self) -> None:
        request = k19.CreateTopicsRequest(
            topics=(
                k19.CreatableTopic(name="flights", num_partitions=PARTITIONS, replication_factor=3),
            ),
            timeout_ms=20_000,
        )
        await (await self.to(0)).call(request, k19.CreateTopicsResponse)
        await until(
            lambda: (
                all(
                    len(b.view.topics["flights"].partitions) == PARTITIONS
                    for b in self.cluster.brokers.values()
                    if "flights" in b.view.topics
                )
                and all("flights" in b.view.topics for b in self.cluster.brokers.values())
            ),
            "all brokers know the topic",
        )

    async def coordinator(self) -> int:
        request = k10.FindCoordinatorRequest(key_type=1, coordinator_keys=("t",))
        while True:
            connection = await self.to(self.any.id)
            reply = await connection.call(request, k10.FindCoordinatorResponse, version=4)
            row = reply.coordinators[0]
            if row.error_code == E.NONE and row.node_id in self.cluster.brokers:
                return row.node_id
            await asyncio.sleep(0.01)

    async def init(self) -> tuple[int, int]:
        request = k22.InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=60_000)
        while True:
            connection = await self.to(await self.coordinator())
            reply = await connection.call(request, k22.InitProducerIdResponse, version=5)
            if reply.error_code == E.NONE:
                return reply.producer_id, reply.producer_epoch
            assert reply.error_code in RETRIED
            await asyncio.sleep(0.01)

    async def end(self, producer: tuple[int, int], *, commit: bool = True) -> tuple[int, int]:
        request = k26.EndTxnRequest(
            transactional_id="t",
            producer_id=producer[0],
            producer_epoch=producer[1],
            committed=commit,
        )
        while True:
            connection = await self.to(await self.coordinator())
            reply = await connection.call(request, k26.EndTxnResponse, version=5)
            if reply.error_code == E.NONE:
                return reply.producer_id, reply.producer_epoch
            assert reply.error_code in RETRIED, E(reply.error_code)
            await asyncio.sleep(0.01)

    async def write(self, producer: tuple[int, int], index: int) -> None:
        while True:
            state = self.any.view.partition("flights", index)
            assert state is not None
            code = E.NOT_LEADER_OR_FOLLOWER
            if state.leader_id in self.cluster.brokers:
                code = await write(await self.to(state.leader_id), producer, V2, index=index)
            if code is E.NONE:
                return
            assert code in WRITE_RETRIED, code
            await asyncio.sleep(0.01)

    def is_ended(self, records: int) -> bool:
        """Every partition holds `records` offsets on its leader, and no transaction is open."""
        for index in range(PARTITIONS):
            state = self.any.view.partition("flights", index)
            if state is None or state.leader_id not in self.cluster.brokers:
                return False
            leader = self.cluster.brokers[state.leader_id]
            log = leader.replicas.partitions["flights", index].log
            if (log.log_end_offset, log.producers.first_undecided_offset) != (records, None):
                return False
        return True

    def states(self) -> set[TransactionState]:
        """Of the transactional id, on all brokers that coordinate it."""
        shards = [
            shard
            for broker in self.cluster.brokers.values()
            for shard in broker.services.transactions.coordinator.runtime.shards
        ]
        return {shard.transactions["t"].state for shard in shards if "t" in shard.transactions}


def play(tmp_path: Path, story: Callable[[WholeCluster, Client], Awaitable[None]]) -> None:
    async def run() -> None:
        async with WholeCluster(tmp_path) as cluster:
            client = Client(cluster)
            await client.create()
            await story(cluster, client)
            client.close()

    asyncio.run(asyncio.wait_for(run(), 60))


def test_markers_reach_every_leader(tmp_path: Path) -> None:
    async def story(cluster: WholeCluster, client: Client) -> None:
        producer = await client.init()
        made = client.any.view.topics[TRANSACTION_TOPIC].configs
        assert made["min.insync.replicas"] == "2"
        for commit in (True, False):
            for index in range(PARTITIONS):
                await client.write(producer, index)
            producer = await client.end(producer, commit=commit)
        await until(lambda: client.is_ended(4), "every partition has both markers")
        await until(
            lambda: client.states() == {TransactionState.COMPLETE_ABORT}, "the id is complete"
        )

    play(tmp_path, story)


def test_the_next_coordinator_finishes_what_the_last_one_began(tmp_path: Path) -> None:
    async def story(cluster: WholeCluster, client: Client) -> None:
        producer = await client.init()
        for index in range(PARTITIONS):
            await client.write(producer, index)
        coordinator = await client.coordinator()
        cluster.cut_off.add(coordinator)  # its markers reach no other broker
        following = await client.end(producer)
        await cluster.stop(coordinator)
        cluster.cut_off.clear()
        assert await client.end(producer) == following, "the reply was lost with the broker"
        await until(lambda: client.states() == {TransactionState.COMPLETE_COMMIT}, "it ends")
        for index in range(PARTITIONS):
            await client.write(following, index)
        await client.end(following)
        await until(lambda: client.states() == {TransactionState.COMPLETE_COMMIT}, "and the next")

    play(tmp_path, story)


def test_markers_wait_for_the_next_leader_of_a_partition(tmp_path: Path) -> None:
    async def story(cluster: WholeCluster, client: Client) -> None:
        producer = await client.init()
        for index in range(PARTITIONS):
            await client.write(producer, index)
        coordinator = await client.coordinator()
        victim = next(b for b in cluster.brokers if b != coordinator)
        await cluster.stop(victim)
        await client.end(producer)
        await until(lambda: client.is_ended(2), "the new leaders have the markers")
        await until(lambda: client.states() == {TransactionState.COMPLETE_COMMIT}, "it ends")

    play(tmp_path, story)
