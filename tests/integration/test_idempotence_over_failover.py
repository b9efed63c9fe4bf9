"""Producer state survives a failover: a new leader recognises a batch that is sent again."""

from __future__ import annotations

import asyncio
import threading

import pytest

from headwater.client.connection import Connection, open_connection
from headwater.errors import ErrorCode
from headwater.records.builder import build_batch, stamp_producer
from headwater.system import SystemClock
from headwater.wire.apis.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from integration.cluster import LocalCluster
from integration.conftest import Start
from integration.workload import read_partition

pytestmark = pytest.mark.integration

PRODUCER_ID = 1 << 40
"""Far above the blocks that the controller gives out."""


class HandProducer:
    """One batch in flight, repeated with the same sequence until it has an outcome."""

    def __init__(self, cluster: LocalCluster, topic: str) -> None:
        self.cluster = cluster
        self.topic = topic
        self.sequence = 0
        self.repeats = 0
        self._connections: dict[int, Connection] = {}

    async def send(self, value: bytes) -> int:
        """The offset it was given. Sends it twice every time, as if the first reply were lost."""
        batch = build_batch([(SystemClock().now_ms(), None, value, ())])
        stamp_producer(batch, PRODUCER_ID, 0, self.sequence)
        offset = await self._until_told(bytes(batch))
        assert await self._until_told(bytes(batch)) == offset
        self.sequence += 1
        return offset

    async def _until_told(self, batch: bytes) -> int:
        rows = (PartitionProduceData(index=0, records=batch),)
        request = ProduceRequest(
            acks=-1,
            timeout_ms=5_000,
            topic_data=(TopicProduceData(name=self.topic, partition_data=rows),),
        )
        while True:
            for broker_id in range(self.cluster.spec.brokers):
                try:
                    to = await self._connection(broker_id)
                    reply = await to.call(request, ProduceResponse, version=9, timeout_s=6)
                except (OSError, TimeoutError):
                    continue
                row = reply.responses[0].partition_responses[0]
                if row.error_code == ErrorCode.NONE:
                    return row.base_offset
                assert ErrorCode(row.error_code).retriable, ErrorCode(row.error_code)
            self.repeats += 1
            await asyncio.sleep(0.005)

    async def _connection(self, broker_id: int) -> Connection:
        known = self._connections.get(broker_id)
        if known is None or not known.is_open:
            port = self.cluster.spec.base_port + broker_id
            known = await open_connection("127.0.0.1", port)
            self._connections[broker_id] = known
        return known

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()


def wait_more(offsets: list[int]) -> None:
    wanted = len(offsets) + 50
    LocalCluster.wait_until(lambda: len(offsets) > wanted, "writes go on")


def test_repeats_are_recognised_by_every_new_leader(start_cluster: Start) -> None:
    cluster = start_cluster(brokers=3)
    cluster.create_topic("once", 1, 3, min_insync_replicas="2")
    offsets: list[int] = []
    stopping = threading.Event()

    async def write() -> None:
        producer = HandProducer(cluster, "once")
        while not stopping.is_set():
            offsets.append(await producer.send(b"%d" % producer.sequence))
        producer.close()

    writer = threading.Thread(target=lambda: asyncio.run(write()))
    writer.start()
    try:
        for _ in range(3):
            wait_more(offsets)
            victim = cluster.leader_of("once")
            cluster.kill_broker(victim)
            wait_more(offsets)
            cluster.restart(victim)
            cluster.wait_isr("once", 3)
    finally:
        stopping.set()
        writer.join(30)
    rows = read_partition(cluster.bootstrap, "once", 0)
    assert [value for _, value in rows] == [str(n) for n in range(len(offsets))]
    assert [offset for offset, _ in rows] == offsets
    print(f"{len(offsets)} batches, each sent twice, over 3 kills: each is there once, in order")
