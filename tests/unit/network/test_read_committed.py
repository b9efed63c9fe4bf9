"""Consumers of read_committed: waits, sessions, offsets, and the start of the log."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from headwater.client.connection import Connection
from headwater.errors import ErrorCode
from headwater.wire.apis.k01_fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from headwater.wire.apis.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from headwater_broker.log.results import AppendOrigin
from headwater_broker.replica.marker_writer import TransactionMarker
from solo_broker import SoloBroker
from unit.log.harness import batch
from unit.network.test_data_plane import fetch, serve

READ_COMMITTED = 1
AT = 1_795_000_000_000
FOLLOWED: dict[str, Any] = {"replicas": (1, 2), "isr": (1, 2)}


class Topic:
    """Transactions on partition 0 of "t"."""

    def __init__(self, broker: SoloBroker, **options: Any) -> None:
        self.broker = broker
        broker.create_topic("t", **options)
        self.partition = broker.replicas.lookup("t", 0)

    def write(self, pid: int = 1, *, epoch: int = 0, sequence: int = 0, at: int = AT) -> int:
        data = batch(
            producer_id=pid, epoch=epoch, sequence=sequence, transactional=True, timestamp=at
        )
        now_ms = self.broker.services.clock.now_ms()
        return self.partition.append(data, 1, now_ms, AppendOrigin.COORDINATOR).base_offset

    def end(self, pid: int = 1, *, epoch: int = 1, commit: bool = True) -> asyncio.Future[Any]:
        marker = TransactionMarker(pid, epoch, commit, 0, 2, {("t", 0): UUID(int=0)})
        return asyncio.ensure_future(self.broker.services.markers.write([marker]))

    def replicate(self) -> None:
        now = self.broker.services.clock.monotonic()
        self.partition.update_follower(2, 7, self.partition.log.log_end_offset, now)


class Session:
    """An incremental fetch session of a consumer."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.session_id = self.epoch = 0

    async def fetch(self, *offsets: int, wait_ms: int = 0) -> list[FetchPartition]:
        rows = tuple(
            FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
            for index, offset in enumerate(offsets)
        )
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            isolation_level=READ_COMMITTED,
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=(FetchTopic(topic="t", partitions=rows),) if rows else (),
        )
        reply = await self.connection.call(request, FetchResponse, version=11)
        assert reply.error_code == 0
        self.session_id, self.epoch = reply.session_id, self.epoch + 1
        return [row for topic in reply.responses for row in topic.partitions]


@pytest.mark.parametrize("commit", [True, False])
def test_a_fetch_waits_until_the_marker_is_replicated(tmp_path: Path, commit: bool) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        topic = Topic(broker, **FOLLOWED)
        waiting = asyncio.ensure_future(
            fetch(c, "t", 0, max_wait_ms=20_000, isolation_level=READ_COMMITTED)
        )
        topic.write()
        topic.replicate()
        done = topic.end(commit=commit)
        await asyncio.sleep(0.02)
        assert not waiting.done(), "the marker may still be lost with this leader"
        topic.replicate()
        row = await waiting
        assert (row.high_watermark, row.last_stable_offset) == (2, 2)
        assert [a.first_offset for a in row.aborted_transactions or ()] == ([] if commit else [0])
        await done

    serve(tmp_path, scenario)


def test_an_open_transaction_hides_what_is_behind_it(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        topic = Topic(broker)
        topic.write(1)
        topic.write(2)
        await topic.end(2)
        hidden = await fetch(c, "t", 0, isolation_level=READ_COMMITTED)
        assert (hidden.records or b"", hidden.high_watermark, hidden.last_stable_offset) == (
            b"", 3, 0
        )  # fmt: skip
        shown = await fetch(c, "t", 0)
        assert len(shown.records or b"") > 0 and shown.aborted_transactions is None
        await topic.end(1)
        assert (await fetch(c, "t", 0, isolation_level=READ_COMMITTED)).last_stable_offset == 4

    serve(tmp_path, scenario)


def test_a_session_names_the_partition_when_its_transaction_has_ended(tmp_path: Path) -> None:
    """The last stable offset moves with the high watermark: a session needs no more."""

    async def scenario(broker: SoloBroker, c: Connection) -> None:
        topic = Topic(broker, partitions=2)
        session = Session(c)
        assert len(await session.fetch(0, 0)) == 2
        topic.write()
        (named,) = await session.fetch()
        assert (named.high_watermark, named.last_stable_offset, named.records) == (1, 0, b"")
        assert await session.fetch() == [], "settled: nothing of it is new"
        waiting = asyncio.ensure_future(session.fetch(wait_ms=20_000))
        await asyncio.sleep(0.02)
        topic.write(sequence=1)
        await asyncio.sleep(0.02)
        assert not waiting.done()
        await topic.end(commit=False)
        (named,) = await waiting
        assert (named.high_watermark, named.last_stable_offset) == (3, 3)
        assert [a.first_offset for a in named.aborted_transactions or ()] == [0]
        assert len(named.records or b"") > 0
        assert await session.fetch(3) == []

    serve(tmp_path, scenario)


async def offset_of(c: Connection, timestamp: int, isolation: int) -> int:
    part = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation,
        topics=(ListOffsetsTopic(name="t", partitions=(part,)),),
    )
    reply = await c.call(request, ListOffsetsResponse, version=7)
    row = reply.topics[0].partitions[0]
    assert row.error_code == ErrorCode.NONE
    return row.offset


def test_offsets_are_those_below_the_last_stable_one(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        topic = Topic(broker)
        topic.write(2, at=AT)
        await topic.end(2)
        topic.write(1, at=AT + 100)
        latest, largest = -1, -3
        for wanted, hidden, shown in (
            (latest, 2, 3), (AT, 0, 0), (AT + 50, 1, 1), (-2, 0, 0)
        ):  # fmt: skip
            assert await offset_of(c, wanted, READ_COMMITTED) == hidden
            assert await offset_of(c, wanted, 0) == shown
        assert await offset_of(c, largest, READ_COMMITTED) < 2
        await topic.end(1)
        assert await offset_of(c, latest, READ_COMMITTED) == 4

    serve(tmp_path, scenario)


def test_deleted_records_do_not_hold_the_last_stable_offset(tmp_path: Path) -> None:
    """A reader at the latest offset would be sent below the log start."""

    async def scenario(broker: SoloBroker, c: Connection) -> None:
        topic = Topic(broker)
        for sequence in range(3):
            topic.write(sequence=sequence)
        topic.partition.log.delete_records_before(2)
        assert await offset_of(c, -1, READ_COMMITTED) == 2
        row = await fetch(c, "t", 2, isolation_level=READ_COMMITTED)
        assert (row.error_code, row.last_stable_offset, row.records or b"") == (0, 2, b"")
        await topic.end(commit=False)
        row = await fetch(c, "t", 2, isolation_level=READ_COMMITTED)
        assert row.last_stable_offset == 4
        assert [a.first_offset for a in row.aborted_transactions or ()] == [0]

    serve(tmp_path, scenario)
