"""Whole transactions over three brokers: coordinator, leaders and the followers that are read."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from headwater.client.connection import Connection, open_connection
from headwater.errors import ErrorCode
from headwater.records.batch import iter_headers
from headwater.topic_names import TRANSACTION_TOPIC
from headwater.wire.apis.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from headwater.wire.apis.k01_fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from headwater.wire.apis.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from headwater.wire.apis.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from headwater.wire.apis.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from headwater.wire.apis.k26_end_txn import EndTxnRequest, EndTxnResponse
from headwater.wire.apis.k61_describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from replica_trio import BROKERS, Trio
from unit.log.harness import batch

READ_COMMITTED = 1
TV1, TV2 = 11, 12


class Producer(NamedTuple):
    producer_id: int
    epoch: int


class Cluster:
    """Three brokers, a topic with a partition led by each, and connections to all."""

    def __init__(self, trio: Trio) -> None:
        self.trio = trio
        self.to: dict[int, Connection] = {}

    async def start(self) -> None:
        self.trio.create(TRANSACTION_TOPIC, 3)
        self.topic_id = self.trio.create("t", 3)
        for broker_id in BROKERS:
            port = self.trio.brokers[broker_id].port
            self.to[broker_id] = await open_connection("127.0.0.1", port)
        services = self.trio.brokers[1].services
        index = services.transactions.coordinator.partition_of("tx")
        self.coordinator = BROKERS[index]

    def close(self) -> None:
        for connection in self.to.values():
            connection.close()

    async def init(self) -> Producer:
        request = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=60_000)
        while True:
            reply = await self.to[self.coordinator].call(request, InitProducerIdResponse, version=5)
            if reply.error_code == 0:
                return Producer(reply.producer_id, reply.producer_epoch)

    async def add(self, producer: Producer, *partitions: int) -> ErrorCode:
        topic = AddPartitionsToTxnTopic(name="t", partitions=partitions)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="tx",
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=(topic,),
        )
        reply = await self.to[self.coordinator].call(request, AddPartitionsToTxnResponse, version=3)
        rows = reply.results_by_topic_v3_and_below[0].results_by_partition
        return ErrorCode(rows[0].partition_error_code)

    async def send(
        self,
        producer: Producer,
        index: int,
        sequence: int = 0,
        version: int = TV2,
        transactional_id: str = "tx",
    ) -> ErrorCode:
        """Again and again while the last transaction's markers are on their way, as clients do."""
        data = bytes(
            batch(
                producer_id=producer.producer_id, epoch=producer.epoch, sequence=sequence,
                transactional=True,
            )
        )  # fmt: skip
        entry = PartitionProduceData(index=index, records=data)
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=-1,
            timeout_ms=10_000,
            topic_data=(TopicProduceData(name="t", partition_data=(entry,)),),
        )
        while True:
            reply = await self.to[BROKERS[index]].call(request, ProduceResponse, version=version)
            code = ErrorCode(reply.responses[0].partition_responses[0].error_code)
            if code not in (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS):
                return code

    async def end(self, producer: Producer, *, commit: bool, version: int = 5) -> Producer:
        request = EndTxnRequest(
            transactional_id="tx",
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            committed=commit,
        )
        reply = await self.to[self.coordinator].call(request, EndTxnResponse, version=version)
        assert reply.error_code == 0, ErrorCode(reply.error_code)
        if version < 5:
            return producer
        return Producer(reply.producer_id, reply.producer_epoch)

    async def fetch(
        self, broker_id: int, index: int, offset: int = 0, wait_ms: int = 0
    ) -> PartitionData:
        part = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            isolation_level=READ_COMMITTED,
            topics=(FetchTopic(topic="t", partitions=(part,)),),
            rack_id="r",  # a consumer that reads from followers
        )
        reply = await self.to[broker_id].call(request, FetchResponse, version=12)
        row = reply.responses[0].partitions[0]
        assert row.error_code == 0, ErrorCode(row.error_code)
        return row

    async def read(self, broker_id: int, index: int, upto: int) -> tuple[list[int], list[int]]:
        """(base offsets of data batches, first offsets of aborted transactions) below `upto`."""
        data, aborted, offset = [], set(), 0
        while offset < upto:
            row = await self.fetch(broker_id, index, offset, wait_ms=5_000)
            aborted.update(a.first_offset for a in row.aborted_transactions or ())
            for _, header in iter_headers(memoryview(bytes(row.records or b""))):
                offset = header.next_offset
                if not header.is_control:
                    data.append(header.base_offset)
        return data, sorted(aborted)

    async def latest(self, broker_id: int, index: int) -> int:
        part = ListOffsetsPartition(partition_index=index, timestamp=-1)
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=READ_COMMITTED,
            topics=(ListOffsetsTopic(name="t", partitions=(part,)),),
        )
        reply = await self.to[broker_id].call(request, ListOffsetsResponse, version=7)
        return reply.topics[0].partitions[0].offset

    async def open_at(self, broker_id: int, index: int) -> list[tuple[int, int, int]]:
        """(producer id, first offset of its transaction, coordinator epoch)."""
        topic = TopicRequest(name="t", partition_indexes=(index,))
        reply = await self.to[broker_id].call(
            DescribeProducersRequest(topics=(topic,)), DescribeProducersResponse, version=0
        )
        rows = reply.topics[0].partitions[0].active_producers
        return [
            (row.producer_id, row.current_txn_start_offset, row.coordinator_epoch) for row in rows
        ]


def play(tmp_path: Path, story: Callable[[Cluster], Awaitable[None]]) -> None:
    async def run() -> None:
        async with Trio(tmp_path) as trio:
            cluster = Cluster(trio)
            await cluster.start()
            await asyncio.wait_for(story(cluster), 60)
            cluster.close()

    asyncio.run(run())


def test_leaders_add_partitions_and_all_replicas_wait_for_the_marker(tmp_path: Path) -> None:
    async def story(c: Cluster) -> None:
        producer = await c.init()
        for index in range(3):
            assert await c.send(producer, index) is ErrorCode.NONE
            assert await c.send(producer, index, 1) is ErrorCode.NONE
            assert await c.latest(BROKERS[index], index) == 0
            found = await c.open_at(BROKERS[index], index)
            assert found == [(producer.producer_id, 0, -1)]
        waiting = [
            asyncio.ensure_future(c.fetch(broker_id, 0, wait_ms=20_000)) for broker_id in BROKERS
        ]
        await asyncio.sleep(0.05)
        assert not any(fetch.done() for fetch in waiting)
        after = await c.end(producer, commit=True)
        assert after == (producer.producer_id, producer.epoch + 1)
        for fetch in waiting:
            assert len((await fetch).records or b"") > 0, "woken by its own last stable offset"
        for broker_id in BROKERS:
            for index in range(3):
                assert await c.read(broker_id, index, 3) == ([0, 1], [])
        for index in range(3):
            assert await c.latest(BROKERS[index], index) == 3
            ((pid, first, coordinator_epoch),) = await c.open_at(BROKERS[index], index)
            assert (pid, first, coordinator_epoch >= 0) == (producer.producer_id, -1, True)
        assert await c.send(producer, 0, 2) is ErrorCode.INVALID_PRODUCER_EPOCH, "a late one"

    play(tmp_path, story)


def test_every_replica_names_the_aborted_transactions(tmp_path: Path) -> None:
    async def story(c: Cluster) -> None:
        producer = await c.init()
        for number in range(6):
            for index in (0, 1):
                assert await c.send(producer, index) is ErrorCode.NONE
            producer = await c.end(producer, commit=number % 2 == 1)
        for broker_id in BROKERS:
            for index in (0, 1):
                data, aborted = await c.read(broker_id, index, 12)
                assert (data, aborted) == ([0, 2, 4, 6, 8, 10], [0, 4, 8])

    play(tmp_path, story)


def test_older_clients_add_partitions_and_leaders_verify(tmp_path: Path) -> None:
    async def story(c: Cluster) -> None:
        producer = await c.init()
        assert await c.add(producer, 0) is ErrorCode.NONE
        assert await c.send(producer, 0, version=TV1) is ErrorCode.NONE
        assert await c.send(producer, 1, version=TV1) is ErrorCode.TRANSACTION_ABORTABLE
        assert await c.send(producer, 2, version=9) is ErrorCode.INVALID_TXN_STATE
        producer = await c.end(producer, commit=False, version=3)
        assert await c.read(2, 0, 2) == ([0], [0])
        assert await c.send(producer, 0, 1, version=TV1) is ErrorCode.TRANSACTION_ABORTABLE
        while (code := await c.add(producer, 0)) is ErrorCode.CONCURRENT_TRANSACTIONS:
            pass
        assert code is ErrorCode.NONE
        assert await c.send(producer, 0, 1, version=TV1) is ErrorCode.NONE
        assert await c.latest(1, 0) == 2

    play(tmp_path, story)


def test_a_deposed_coordinator_confirms_nothing(tmp_path: Path) -> None:
    """The leader has a marker of a later coordinator epoch: this one does not know its successor,
    and what that has ended."""

    async def story(c: Cluster) -> None:
        producer = await c.init()
        assert await c.add(producer, 0) is ErrorCode.NONE

        async def verify(coordinator_epoch: int) -> ErrorCode:
            asked = AddPartitionsToTxnTransaction(
                transactional_id="tx",
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                verify_only=True,
                topics=(AddPartitionsToTxnTopic(name="t", partitions=(0,)),),
                coordinator_epoch=coordinator_epoch,
            )
            reply = await c.to[c.coordinator].call(
                AddPartitionsToTxnRequest(transactions=(asked,)),
                AddPartitionsToTxnResponse,
                version=5,
            )
            rows = reply.results_by_transaction[0].topic_results[0].results_by_partition
            return ErrorCode(rows[0].partition_error_code)

        assert [await verify(-1), await verify(0)] == [ErrorCode.NONE] * 2
        assert await verify(1) is ErrorCode.NOT_COORDINATOR
        service = c.trio.brokers[c.coordinator].services.transactions
        assert not service.coordinator.runtime.is_hosted(BROKERS.index(c.coordinator))

    play(tmp_path, story)


@pytest.mark.parametrize("commit", [True, False])
def test_a_new_leader_goes_on_where_the_old_one_was(tmp_path: Path, commit: bool) -> None:
    """Its producer state, index and last stable offset come from its own log."""

    async def story(c: Cluster) -> None:
        producer = await c.init()
        assert await c.send(producer, 0) is ErrorCode.NONE
        c.trio.elect(c.topic_id, 2)
        c.to[1], c.to[2] = c.to[2], c.to[1]  # partition 0 is sent to broker 2
        assert await c.send(producer, 0, 1) is ErrorCode.NONE
        assert await c.latest(1, 0) == 0
        await c.end(producer, commit=commit)
        c.to[1], c.to[2] = c.to[2], c.to[1]
        for broker_id in BROKERS:
            assert await c.read(broker_id, 0, 3) == ([0, 1], [] if commit else [0])

    play(tmp_path, story)
