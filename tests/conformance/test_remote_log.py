"""The contract of the remote log: one suite over the double in memory and Delta tables."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from headwater.ports.remote_log import RemoteLog, RemoteLogError, TieredRange, TieredTopic
from headwater.records.batch import compute_crc, iter_headers
from headwater.records.record import read_records
from headwater.testing.memory_remote_log import MemoryRemoteLog
from headwater_tier.commit import commit_facts, ensure_table
from headwater_tier.data_files import tier_range
from headwater_tier.offset_ranges import plan_ranges
from headwater_tier.remote_log import DeltaRemoteLog
from tier_log import TOPIC_ID, CountingEntropy, FixedClock, MemoryLog, location_at

ANSWER_S = 600.0

Use = Callable[[RemoteLog, TieredTopic], Awaitable[None]]


def tier(log: MemoryLog, folder: Path) -> TieredTopic:
    location = location_at(folder)
    ranges = plan_ranges(ensure_table(location, 2), log.bounds())
    clock = FixedClock()
    seed = hash(str(ranges)) & 0xFFFFFFFF
    facts = tier_range(log.fetch, ranges, location, clock=clock, entropy=CountingEntropy(seed))
    commit_facts(location, ranges, [facts] if facts else [], clock=clock)
    return TieredTopic(location.topic, location.topic_id, location.uri)


def store(path: str, data: bytes) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_bytes(data)


@pytest.fixture(params=["memory", "delta"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[MemoryLog, Use], None]:
    """Runs a coroutine with a tiered log."""

    def runner(log: MemoryLog, use: Use) -> None:
        async def body() -> None:
            remote: Any
            if request.param == "memory":
                topic = TieredTopic("flights", TOPIC_ID, "memory:")
                remote = MemoryRemoteLog(str(tmp_path), store)
                for partition, data in log.partitions.items():
                    end = log.next[partition]
                    remote.put(TOPIC_ID, partition, 0, end, bytes(data))
            else:
                topic = tier(log, tmp_path)
                # The first reply of a worker may wait until its kernels are compiled.
                remote = DeltaRemoteLog(str(tmp_path / "cache"), call_timeout_s=ANSWER_S)
            try:
                await use(remote, topic)
            finally:
                await remote.close()

        asyncio.run(body())

    return runner


async def read_all(remote: RemoteLog, topic: TieredTopic, partition: int, end: int) -> bytes:
    out, offset = b"", 0
    while offset < end:
        piece = await remote.read(topic, partition, offset, 4096)
        assert piece.next_offset > offset and piece.size_bytes > 0
        out += Path(piece.path).read_bytes()[piece.position :][: piece.size_bytes]
        offset = piece.next_offset
    return out


def test_ranges_and_every_record_in_order(run: Callable[[MemoryLog, Use], None]) -> None:
    log = MemoryLog()
    log.fill(0, 900, size=50)
    log.fill(1, 3)

    async def use(remote: RemoteLog, topic: TieredTopic) -> None:
        assert await remote.ranges(topic) == {0: TieredRange(0, 900), 1: TieredRange(0, 3)}
        for partition in (0, 1):
            data = await read_all(remote, topic, partition, log.next[partition])
            for at, header in iter_headers(data):
                assert header.crc == compute_crc(memoryview(data), at, header.size_bytes)
            assert list(read_records(data)) == list(read_records(bytes(log.partitions[partition])))

    run(log, use)


def test_a_read_starts_at_the_batch_that_holds_the_offset(
    run: Callable[[MemoryLog, Use], None],
) -> None:
    log = MemoryLog()
    log.fill(0, 200)

    async def use(remote: RemoteLog, topic: TieredTopic) -> None:
        piece = await remote.read(topic, 0, 123, 1)
        data = Path(piece.path).read_bytes()[piece.position :][: piece.size_bytes]
        (_, header), *more = list(iter_headers(data))
        assert more == [] and header.base_offset <= 123 < header.next_offset == piece.next_offset

    run(log, use)


def test_a_record_is_found_by_time(run: Callable[[MemoryLog, Use], None]) -> None:
    log = MemoryLog()
    log.append(0, [(100, None, b"a"), (300, None, b"b")])
    log.append(0, [(200, None, b"c"), (400, None, b"d")], leader_epoch=3)

    async def use(remote: RemoteLog, topic: TieredTopic) -> None:
        async def find(time_ms: int, start: int = 0, end: int = 4) -> tuple[int, int, int] | None:
            found = await remote.find_timestamp(topic, 0, time_ms, start, end)
            return found and (found.offset, found.timestamp_ms, found.leader_epoch)

        assert await find(0) == (0, 100, 0)
        assert await find(101) == (1, 300, 0)
        assert await find(150, start=2) == (2, 200, 3)
        assert await find(301) == (3, 400, 3)
        assert await find(301, end=3) is None
        assert await find(401) is None

    run(log, use)


def test_outside_the_range_is_an_error_that_names_the_offset(
    run: Callable[[MemoryLog, Use], None],
) -> None:
    log = MemoryLog()
    log.fill(0, 20)

    async def use(remote: RemoteLog, topic: TieredTopic) -> None:
        for partition, offset in ((0, 20), (7, 0)):
            with pytest.raises(RemoteLogError, match=f"offset {offset} is not"):
                await remote.read(topic, partition, offset, 100)

    run(log, use)


def test_what_rebuilding_must_keep(tmp_path: Path) -> None:
    """Gaps, leader epochs, append time, nulls and headers, through files and back."""
    log = MemoryLog()
    log.append(0, [(5, None, b"a"), (4, b"", b"", [("h", None), ("h", b"x")])], gap=3)
    log.append(0, [(9, b"k", None)] * 2, leader_epoch=2, log_append_time=True)
    log.append(0, [(7, b"k", b"z")], gap=10, leader_epoch=2, compression=4)
    log.next[0] += 6  # control records at the end, for example

    async def body() -> None:
        topic = tier(log, tmp_path)
        remote = DeltaRemoteLog(str(tmp_path / "cache"))
        try:
            data = await read_all(remote, topic, 0, log.next[0])
        finally:
            await remote.close()
        headers = [h for _, h in iter_headers(data)]
        covers = [(h.base_offset, h.next_offset, h.leader_epoch) for h in headers]
        assert covers == [(0, 5, 0), (5, 17, 2), (17, 24, 2)]
        assert [h.is_log_append_time for h in headers] == [False, True, False]
        assert list(read_records(data)) == list(read_records(bytes(log.partitions[0])))

    original = log.fetch

    def fetch(partition: int, offset: int) -> Any:
        found = original(partition, offset)
        if found.records:
            return found
        empty = MemoryLog()
        empty.next[0] = log.next[0] - 1
        empty.append(0, [(1, b"\x00\x00\x00\x01", None)], control=True, transactional=True)
        return type(found)(bytes(empty.partitions[0]))

    log.fetch = fetch  # type: ignore[method-assign]
    asyncio.run(body())


def test_deleted_files_fail_even_what_was_cached(tmp_path: Path) -> None:
    log = MemoryLog()
    log.fill(0, 50)

    async def body() -> None:
        topic = tier(log, tmp_path)
        remote = DeltaRemoteLog(str(tmp_path / "cache"), source_check_s=-1.0)
        try:
            await remote.read(topic, 0, 0, 100)
            (gone,) = Path(topic.table_uri).glob("*.parquet")
            gone.unlink()
            with pytest.raises(RemoteLogError, match=gone.name):
                await remote.read(topic, 0, 0, 100)
        finally:
            await remote.close()

    asyncio.run(body())


def test_a_killed_worker_is_replaced_and_newer_offsets_are_seen(tmp_path: Path) -> None:
    log = MemoryLog()
    log.fill(0, 50)

    async def body() -> None:
        topic = tier(log, tmp_path)
        remote = DeltaRemoteLog(str(tmp_path / "cache"))
        try:
            await remote.read(topic, 0, 0, 100)
            (pid,) = remote.worker_pids
            os.kill(pid, signal.SIGKILL)
            log.fill(0, 25)
            tier(log, tmp_path)
            assert (await remote.read(topic, 0, 60, 100)).next_offset > 60
            assert (await remote.ranges(topic))[0] == TieredRange(0, 75)
        finally:
            await remote.close()
        assert not (tmp_path / "cache").exists()

    asyncio.run(body())


def test_the_proxy_loads_no_heavy_library() -> None:
    code = (
        "import sys, headwater_tier.remote_log\n"
        "print([m for m in ('pyarrow', 'numpy', 'numba', 'deltalake') if m in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"
