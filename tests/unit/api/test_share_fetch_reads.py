"""What share fetches read: tiered ranges, aborted and open transactions, markers, cold pages."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from headwater.client.connection import open_connection
from headwater.errors import ErrorCode
from headwater.ports.remote_log import RemoteLogError, RemoteSlice
from headwater.records.batch import iter_headers, read_header
from headwater.records.builder import build_batch
from headwater.records.filter import emptied
from headwater.wire.apis import k78_share_fetch as k78
from headwater.wire.schema import encode
from headwater_broker.api.replies import FilePart
from headwater_broker.api.share.response_codec import ShareFetchReply, ShareRow
from headwater_broker.log.results import AppendOrigin
from headwater_broker.replica.marker_writer import TransactionMarker
from headwater_broker.replica.share.acquired_rows import Acquired
from headwater_broker.replica.share.ports import SharePartitionKey
from share_member import Member, code_of, rows_of
from share_world import ShareWorld, share, until
from solo_broker import SoloBroker
from unit.log.harness import batch as log_batch
from unit.network.test_data_plane import batch, produce
from unit.network.test_throttling import EVERYBODY
from unit.telemetry.test_metrics import scrape
from unit.telemetry.test_transaction_metrics import status

ACCEPT, RELEASE = 1, 2


def transactional(world: ShareWorld, pid: int, sequence: int, count: int = 2) -> None:
    partition = world.broker.replicas.lookup("t", 0)
    data = log_batch(count, producer_id=pid, epoch=0, sequence=sequence, transactional=True)
    partition.append(data, 1, world.broker.services.clock.now_ms(), AppendOrigin.COORDINATOR)


async def end(world: ShareWorld, pid: int, *, commit: bool) -> None:
    marker = TransactionMarker(pid, 1, commit, 0, 2, {("t", 0): UUID(int=0)})
    await world.broker.services.markers.write([marker])


async def three_transactions(world: ShareWorld) -> None:
    """0-1 aborted, 2-3 committed, 4 and 5 the markers, 6-7 open."""
    transactional(world, 1, 0)
    transactional(world, 2, 0)
    await end(world, 1, commit=False)
    await end(world, 2, commit=True)
    transactional(world, 3, 0)


def test_read_committed_skips_what_was_aborted_and_waits_for_what_is_open(tmp_path: Path) -> None:
    async def story(world: ShareWorld) -> None:
        a = await world.member()
        await three_transactions(world)
        await world.load(a)
        assert await a.rows() == [(2, 3, 1)]
        assert await a.rows((ACCEPT, 2, 3)) == []
        (led,) = world.shares
        assert led.machine.start_offset == 6
        waiting = asyncio.create_task(a.rows(max_wait_ms=20_000))
        await until(lambda: world.broker.services.purgatories.fetch.parked)
        await end(world, 3, commit=True)
        assert await waiting == [(6, 7, 1)]

    share(tmp_path, story, share_isolation_level="read_committed")


def test_read_uncommitted_delivers_all_but_the_markers(tmp_path: Path) -> None:
    async def story(world: ShareWorld) -> None:
        a = await world.member()
        await three_transactions(world)
        await world.load(a)
        assert await a.rows() + await a.rows() == [(0, 3, 1), (6, 7, 1)]  # two segments

    share(tmp_path, story)


def test_markers_alone_wake_nobody_for_nothing(tmp_path: Path) -> None:
    async def story(world: ShareWorld) -> None:
        a = await world.member()
        await world.load(a)
        transactional(world, 1, 0)
        await end(world, 1, commit=False)
        assert await a.rows(max_wait_ms=100) == []
        (led,) = world.shares
        assert (led.machine.start_offset, led.machine.in_flight) == (3, 0)

    share(tmp_path, story, share_isolation_level="read_committed")


class Table:
    """A remote log of the records that the test gives it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.asked: list[int] = []
        self.fails = False
        self.gate = asyncio.Event()
        self.gate.set()

    async def read(self, topic: Any, partition: int, offset: int, max_bytes: int) -> RemoteSlice:
        self.asked.append(offset)
        await self.gate.wait()
        if self.fails:
            raise RemoteLogError("the table is away")
        return RemoteSlice(str(self.path), 0, self.path.stat().st_size, 3)


def test_tiered_records_come_from_the_table(tmp_path: Path) -> None:
    table = Table(tmp_path / "slice")
    table.path.write_bytes(
        b"".join(
            build_batch([(1, None, b"tiered", ()), (2, None, b"too", ())][: 2 - base // 2],
                        base_offset=base)
            for base in (0, 2)
        )
    )  # fmt: skip

    async def story(world: ShareWorld) -> None:
        a = await world.member()
        for _ in range(5):
            await world.produce()
        log = world.broker.replicas.lookup("t", 0).log
        log.local_log_start_offset = 3
        await world.load(a)
        table.fails = True
        (row,) = rows_of(await a.fetch())
        assert row.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        table.fails = False
        reply = await a.fetch(max_records=1)
        (row,) = rows_of(reply)
        assert [(r.first_offset, r.last_offset) for r in row.acquired_records] == [(0, 1)]
        assert [h.base_offset for _, h in iter_headers(bytes(row.records))] == [0]
        assert await a.rows() == [(2, 2, 1)]
        assert await a.rows() == [(3, 4, 1)]
        assert table.asked == [0, 0, 2]

    share(tmp_path / "log", story, remote_log=table)


def test_a_session_that_ends_while_the_table_is_read_keeps_no_records(tmp_path: Path) -> None:
    table = Table(tmp_path / "slice")
    table.path.write_bytes(build_batch([(1, None, b"tiered", ()), (2, None, b"too", ())]))

    async def story(world: ShareWorld) -> None:
        a, b = await world.member(), await world.member("b")
        for _ in range(3):
            await world.produce()
        world.broker.replicas.lookup("t", 0).log.local_log_start_offset = 2
        await world.load(a)
        table.fails = True
        await b.fetch()  # its session keeps the share partition here
        table.fails = False
        table.gate.clear()
        asked = len(table.asked)
        reading = asyncio.create_task(a.fetch())
        await until(lambda: len(table.asked) > asked)
        sessions = world.broker.services.shares.sessions
        sessions.close(next(iter(sessions)))
        table.gate.set()
        assert await asyncio.wait_for(reading, 20)
        (led,) = world.shares
        assert led.machine.in_flight == 0
        assert await b.rows() == [(0, 1, 1)]

    share(tmp_path / "log", story, remote_log=table)


def a_wide_gap(start: int) -> tuple[bytes, int]:
    """(empty batches, as a table answers for the gap of a restore; the next offset)."""
    header = read_header(build_batch([(1, None, b"", ())]), 0)
    found, at = b"", start
    for _ in range(4):
        found += emptied(header._replace(base_offset=at, last_offset_delta=2**31 - 1))
        at += 2**31
    return found, at


def test_the_gap_of_a_restore_is_passed_over_and_delivered_to_nobody(tmp_path: Path) -> None:
    """A member would have to acknowledge each of its offsets."""
    table = Table(tmp_path / "slice")
    gap, new = a_wide_gap(2)
    old = [build_batch([(1, None, b"tiered", ())], base_offset=at) for at in (0, 1)]
    table.path.write_bytes(b"".join([*old, gap]))

    async def story(world: ShareWorld) -> None:
        a = await world.member()
        await world.produce(2)
        world.broker.replicas.lookup("t", 0).log.truncate_fully_and_start_at(new, 0)
        await world.produce(2)
        await world.load(a)
        assert await a.rows(max_records=2) == [(0, 1, 1)]
        table.path.write_bytes(gap)
        assert await a.rows() == []
        assert code_of(await a.acknowledge((ACCEPT, 1, 1))) == 0
        assert world.state().delivery_complete_count == 2**31 - 1, "stored in 32 bits"
        assert code_of(await a.acknowledge((ACCEPT, 0, 0))) == 0
        assert await a.rows() == [(new, new + 1, 1)]

    share(tmp_path / "log", story, remote_log=table)


class ColdOnce:
    """A page cache in which everything is cold until it is warmed."""

    def __init__(self) -> None:
        self.warmed: list[int] = []

    def is_cold(self, fd: int, position: int, size: int) -> bool:
        return True

    async def warm(self, parts: Sequence[FilePart]) -> None:
        await asyncio.sleep(0)
        self.warmed += [part.size for part in parts]


def test_cold_pages_are_brought_in_by_a_thread(tmp_path: Path) -> None:
    async def story(world: ShareWorld) -> None:
        a = await world.member()
        await world.produce(2, size=200_000)
        partition = world.broker.replicas.lookup("t", 0)
        partition.log.roll(0)
        await world.produce(1)
        await world.load(a)
        cold = ColdOnce()
        object.__setattr__(world.broker.services, "warmer", cold)
        assert await a.rows() == [(0, 1, 1)]
        assert await a.rows() == [(2, 2, 1)]
        assert len(cold.warmed) == 1

    share(tmp_path, story)


def test_deleted_records_are_passed_over(tmp_path: Path) -> None:
    async def story(world: ShareWorld) -> None:
        a = await world.member()
        await world.produce(3)
        await world.produce(3)
        await world.load(a)
        assert await a.rows(max_records=1) == [(0, 2, 1)]
        world.broker.replicas.lookup("t", 0).log.delete_records_before(4)
        assert await a.rows((ACCEPT, 0, 2)) == [(4, 5, 1)]

    share(tmp_path, story)


def test_the_answer_is_that_of_the_codec(tmp_path: Path) -> None:
    async def story(world: ShareWorld) -> None:
        services = world.broker.services
        row, failed = ShareRow((world.topic_id, 0)), ShareRow((world.topic_id, 7))
        row.records, row.acquired = b"abc", [Acquired(5, 9, 2), Acquired(11, 11, 1)]
        failed.code, failed.message, failed.acknowledge_code = 3, "gone", 121
        for version in (1, 2):
            (data,) = ShareFetchReply(services, 77, "PLAINTEXT").build([row, failed], 30_000)
            body = encode(_expected(world), version)
            assert (
                data == (len(body) + 5).to_bytes(4, "big") + (77).to_bytes(4, "big") + b"\0" + body
            )

    share(tmp_path, story)


def _expected(world: ShareWorld) -> k78.ShareFetchResponse:
    rows = (
        k78.PartitionData(
            partition_index=0,
            records=b"abc",
            acquired_records=(
                k78.AcquiredRecords(first_offset=5, last_offset=9, delivery_count=2),
                k78.AcquiredRecords(first_offset=11, last_offset=11, delivery_count=1),
            ),
        ),
        k78.PartitionData(
            partition_index=7,
            error_code=3,
            error_message="gone",
            acknowledge_error_code=121,
            records=b"",
        ),
    )
    topic = k78.ShareFetchableTopicResponse(topic_id=world.topic_id, partitions=rows)
    return k78.ShareFetchResponse(acquisition_lock_timeout_ms=30_000, responses=(topic,))


def test_fetch_quotas_hold_a_share_consumer_back(tmp_path: Path) -> None:
    async def story(world: ShareWorld) -> None:
        a = await world.member()
        for _ in range(6):
            await world.produce(1, size=50_000)
        await world.load(a)
        world.broker.limit_clients(**{EVERYBODY: {"consumer_byte_rate": "5000"}})
        first = await a.fetch(max_records=4)
        assert rows_of(first)
        second = await a.fetch(max_records=4)
        assert second.throttle_time_ms > 0 and not list(rows_of(second))

    share(tmp_path, story)


def test_metrics_and_status(tmp_path: Path) -> None:
    async def story(world: ShareWorld) -> None:
        a = await world.member()
        await world.produce(4)
        await world.load(a)
        await a.rows()
        await a.rows((ACCEPT, 0, 0), (RELEASE, 1, 1))
        found = await scrape(world.broker)
        assert found["headwater_share_sessions", ()] == 1
        assert found["headwater_share_partitions", ("g",)] == 1
        assert found["headwater_share_locked_records", ("g",)] == 3
        assert found["headwater_share_acquired_records_total", ()] == 5
        assert found["headwater_share_redelivered_records_total", ()] == 1
        assert found["headwater_share_acknowledged_offsets_total", ("accept",)] == 1
        (row,) = (await status(world.broker))["share_partitions"]
        assert (row["group"], row["topic"], row["start_offset"], row["locked"]) == ("g", "t", 1, 3)

    share(tmp_path, story)


def test_the_states_of_the_clusters_own_share_coordinator(tmp_path: Path) -> None:
    """The real persister: what was accepted stays so for the next leader."""

    async def run() -> None:
        broker = SoloBroker(tmp_path, share_coordinator_state_topic_num_partitions="2")
        async with broker:
            topic_id = broker.create_topic("t")
            key = SharePartitionKey("g", topic_id, 0)
            await broker.services.persister.initialize(key, 1, 0)
            c = await open_connection("127.0.0.1", broker.port)
            await produce(c, "t", batch(4))
            a = Member(c, topic_id)
            assert await a.rows(max_wait_ms=10_000) == [(0, 3, 1)]
            assert code_of(await a.acknowledge((ACCEPT, 0, 0), (RELEASE, 3, 3))) == 0
            summary = await broker.services.persister.read_summary(key)
            assert (summary.start_offset, summary.delivery_complete_count) == (0, 1)
            broker.create_topic("t", epoch=1)
            assert await a.rows(max_wait_ms=10_000) == [(1, 2, 1), (3, 3, 2)]
            c.close()

    asyncio.run(run())
