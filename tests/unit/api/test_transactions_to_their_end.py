"""Transactions from begin to end through one broker: records, markers, readers, restarts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from headwater.client.connection import Connection
from headwater.errors import ErrorCode
from headwater.system import SystemClock
from headwater.topic_names import TRANSACTION_TOPIC
from headwater.wire.apis.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from headwater.wire.apis.k01_fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from solo_broker import SoloBroker
from unit.api.test_transactions import SMALL, add, described, end, init, producer_of, settled
from unit.log.harness import batch
from unit.network.test_data_plane import serve

E = ErrorCode
Story = Callable[[SoloBroker, Connection], Awaitable[None]]
READ_COMMITTED = 1
V1, V2 = 1, 2


def tell(tmp_path: Path, story: Story) -> None:
    async def with_topics(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic(TRANSACTION_TOPIC, 2)
        broker.create_topic("flights", 2)
        await story(broker, c)

    serve(tmp_path, with_topics, **SMALL)


async def write(
    c: Connection, producer: tuple[int, int], version: int, *, index: int = 0, sequence: int = 0
) -> ErrorCode:
    """Write a record within the transaction; a client of version 1 enlists the partition itself."""
    if version == V1 and sequence == 0:
        [code] = await add(c, producer, ("flights", index))
        if code is not E.NONE:
            return code
    records = batch(
        timestamp=SystemClock().now_ms(),  # an older one than the marker's would roll the log
        producer_id=producer[0],
        epoch=producer[1],
        sequence=sequence,
        transactional=True,
    )
    entry = PartitionProduceData(index=index, records=bytes(records))
    request = ProduceRequest(
        transactional_id="t",
        acks=-1,
        timeout_ms=20_000,
        topic_data=(TopicProduceData(name="flights", partition_data=(entry,)),),
    )
    reply = await c.call(request, ProduceResponse, version=12 if version == V2 else 11)
    return ErrorCode(reply.responses[0].partition_responses[0].error_code)


async def commit(
    c: Connection, producer: tuple[int, int], version: int, *, commit: bool = True
) -> tuple[int, int]:
    """EndTxn; the identity to go on with."""
    reply = await end(c, producer, commit=commit, version=5 if version == V2 else 4)
    assert reply.error_code == E.NONE
    return (reply.producer_id, reply.producer_epoch) if version == V2 else producer


async def stable(c: Connection) -> tuple[int, int, list[int]]:
    """Of flights-0: (high watermark, last stable offset, first offsets of aborted transactions)."""
    part = FetchPartition(partition=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        max_bytes=1 << 20,
        isolation_level=READ_COMMITTED,
        topics=(FetchTopic(topic="flights", partitions=(part,)),),
    )
    reply = await c.call(request, FetchResponse, version=11)
    row = reply.responses[0].partitions[0]
    aborted = [entry.first_offset for entry in row.aborted_transactions or ()]
    return row.high_watermark, row.last_stable_offset, aborted


async def state(c: Connection) -> str:
    (row,) = await described(c, "t")
    return row.transaction_state


@pytest.mark.parametrize("version", [V1, V2])
def test_committed_records_are_read_and_aborted_ones_are_named(
    tmp_path: Path, version: int
) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        producer = await producer_of(c)
        assert await write(c, producer, version) is E.NONE
        assert await stable(c) == (1, 0, []), "an open transaction holds readers up"
        producer = await commit(c, producer, version)
        await settled(broker)
        assert await stable(c) == (2, 2, [])
        sequence = 1 if version == V1 else 0
        if version == V1:
            await add(c, producer, ("flights", 0))
        assert await write(c, producer, version, sequence=sequence) is E.NONE
        await commit(c, producer, version, commit=False)
        await settled(broker)
        assert await stable(c) == (4, 4, [2])
        assert await state(c) == "CompleteAbort"

    tell(tmp_path, story)


@pytest.mark.parametrize("version", [V1, V2])
def test_a_newer_producer_aborts_and_fences_the_older_one(tmp_path: Path, version: int) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        old = await producer_of(c)
        await write(c, old, version)
        new = await producer_of(c)
        assert new == (old[0], old[1] + 2), "one epoch for the abort, one for the producer"
        assert await stable(c) == (2, 2, [0])
        late = await write(c, old, version, sequence=1)
        assert late is E.INVALID_PRODUCER_EPOCH
        assert (await end(c, old)).error_code == E.PRODUCER_FENCED
        assert await write(c, new, version) is E.NONE
        await commit(c, new, version)
        await settled(broker)
        assert await stable(c) == (4, 4, [0])

    tell(tmp_path, story)


@pytest.mark.parametrize("version", [V1, V2])
def test_a_transaction_that_times_out_is_aborted(tmp_path: Path, version: int) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        reply = await init(c, timeout_ms=30)
        producer = reply.producer_id, reply.producer_epoch
        await write(c, producer, version)
        while await state(c) != "CompleteAbort":
            await asyncio.sleep(0.005)
        assert await stable(c) == (2, 2, [0])
        # Flink resumes a transaction of version 2 by EndTxn v4, and would skip PRODUCER_FENCED.
        assert (await end(c, producer, version=4)).error_code == E.TRANSACTION_ABORTABLE
        assert (await end(c, producer, version=3)).error_code == E.PRODUCER_FENCED
        assert (await end(c, producer, version=1)).error_code == E.INVALID_PRODUCER_EPOCH
        if version == V1:
            ended = await end(c, producer, commit=False, version=4)
            assert ended.error_code == E.PRODUCER_FENCED
            return
        assert (await end(c, producer)).error_code == E.TRANSACTION_ABORTABLE
        ended = await end(c, producer, commit=False)
        assert (ended.error_code, ended.producer_epoch) == (E.NONE, producer[1] + 1)

    tell(tmp_path, story)


@pytest.mark.parametrize("version", [V1, V2])
def test_an_open_transaction_outlives_its_coordinator(tmp_path: Path, version: int) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        producer = await producer_of(c)
        await write(c, producer, version)
        broker.create_topic(TRANSACTION_TOPIC, 2, epoch=1)
        assert await write(c, producer, version, sequence=1) is E.NONE
        await commit(c, producer, version)
        broker.create_topic(TRANSACTION_TOPIC, 2, epoch=2)
        await commit(c, producer, version)  # the reply was lost
        await settled(broker)
        high_watermark, last_stable, aborted = await stable(c)
        assert (last_stable, aborted) == (high_watermark, [])
        assert high_watermark in (3, 4), "in version 1 the marker may be there twice"
        assert await state(c) == "CompleteCommit"

    tell(tmp_path, story)


def test_the_next_transaction_waits_for_the_markers_of_the_last_one(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        producer = await producer_of(c)
        for _ in range(5):
            assert await write(c, producer, V2) is E.NONE, "no CONCURRENT_TRANSACTIONS"
            producer = await commit(c, producer, V2)
        await settled(broker)
        assert await stable(c) == (10, 10, [])

    tell(tmp_path, story)


def test_the_last_epoch_is_followed_by_a_new_producer_id(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        producer = await producer_of(c)
        shard = next(s for s in broker.services.transactions.coordinator.runtime.shards
                     if "t" in s.transactions)  # fmt: skip
        shard.transactions["t"] = shard.transactions["t"]._replace(producer_epoch=32_766)
        last = (producer[0], 32_766)
        assert await write(c, last, V2) is E.NONE
        following = await commit(c, last, V2)
        assert following[0] != producer[0] and following[1] == 0
        assert await commit(c, last, V2) == following, "a retry"
        assert await write(c, following, V2) is E.NONE
        await commit(c, following, V2)
        await settled(broker)
        assert await stable(c) == (4, 4, [])

    tell(tmp_path, story)


def test_a_deleted_topic_does_not_hold_up_its_transaction(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("brief")
        producer = await producer_of(c)
        await add(c, producer, ("brief", 0), ("flights", 0))
        broker.delete_topic("brief")
        broker.create_topic("brief")
        await commit(c, producer, V2)
        await settled(broker)
        assert await state(c) == "CompleteCommit"
        assert broker.services.hosted("brief", 0).log.log_end_offset == 0, "it is another topic"

    tell(tmp_path, story)


@pytest.mark.parametrize("version", [V1, V2])
def test_a_deposed_coordinator_gives_no_final_answer(tmp_path: Path, version: int) -> None:
    """It does not know of its successor, where the id may have another producer or transaction."""

    async def story(broker: SoloBroker, c: Connection) -> None:
        producer = await producer_of(c)
        await write(c, producer, version)
        await commit(c, producer, version)
        await settled(broker)
        broker.is_deposed = True
        of_version = 5 if version == V2 else 4
        for identity in (producer, (producer[0], 9), (producer[0] + 1, 0)):
            for outcome in (True, False):
                ended = await end(c, identity, commit=outcome, version=of_version)
                assert ended.error_code == E.NOT_COORDINATOR
        fenced = (producer[0], 9)
        assert await add(c, fenced) == [E.NOT_COORDINATOR]
        assert (await init(c, producer=fenced)).error_code == E.NOT_COORDINATOR
        broker.is_deposed = False
        assert await add(c, fenced) == [E.PRODUCER_FENCED]
        assert await commit(c, producer, version)

    tell(tmp_path, story)
