"""The processes that decode and filter: bounded in time and memory, named when they end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import psutil
import pytest

from headwater.client.values import ConsumerRecord
from headwater.errors import UsageError
from headwater_gateway.console.messages.jobs import Counts, Job, Judged, WorkerEndedError
from headwater_gateway.console.messages.worker_pool import WORKERS, WorkerPool
from headwater_tier.typed.memory_schemas import MemorySchemas

pytestmark = pytest.mark.integration

MESSAGES = 100_000
CHUNK = 2_000
FILTER_S_MAX = 3.0
"""On processors that are free; a test's are not, so it measures what the workers use of them. The
whole way is timed by `make claims` (`console_filter`)."""
SCHEMAS = MemorySchemas()
NESTED = "value.a.all(x, value.a.all(y, x + y >= 0))"


def record(offset: int, value: bytes | None) -> ConsumerRecord:
    return ConsumerRecord("t", 0, offset, 1_700_000_000_000, 0, b"k", value, [], 0)


def flight(number: int) -> bytes:
    legs = [{"from": "EWR", "to": "SFO"}]
    return json.dumps({"id": number, "carrier": "UA", "legs": legs, "pad": "x" * 120}).encode()


def with_pool(work: Callable[[WorkerPool], Awaitable[Any]]) -> Any:
    async def go() -> Any:
        pool = WorkerPool()
        try:
            return await work(pool)
        finally:
            await pool.close()

    return asyncio.run(go())


async def judged(pool: WorkerPool, expression: str, *values: bytes | None) -> Judged:
    records = [record(offset, value) for offset, value in enumerate(values)]
    return await pool.judge(pool.new_job(), Job(filter=expression), records, SCHEMAS)


def test_a_record_that_takes_too_long_is_named_and_the_next_request_is_served() -> None:
    slow = json.dumps({"a": list(range(4000))}).encode()

    async def work(pool: WorkerPool) -> None:
        for _ in range(3):
            with pytest.raises(WorkerEndedError) as caught:
                await judged(pool, NESTED, b'{"a": [1]}', slow, b'{"a": [2]}')
            assert caught.value.index == 1 and "200 ms" in caught.value.cause
            assert (await judged(pool, NESTED, b'{"a": [1]}')).counts.matched == 1

    with_pool(work)


def test_memory_beyond_its_limit_ends_a_worker_only() -> None:
    # 19 doublings of 10 kB: 5 GB.
    doubling = "value" + '.replace("x", "xx")' * 19 + ".size() > 1"

    async def work(pool: WorkerPool) -> None:
        with pytest.raises(WorkerEndedError) as caught:
            await judged(pool, doubling, b"x" * 10_000)
        assert caught.value.index == 0
        assert (await judged(pool, "value.a == 1", b'{"a": 1}')).counts.matched == 1

    with_pool(work)


def test_hostile_values_are_counted_and_rendered() -> None:
    values: list[bytes | None] = [
        b'{"a": 1}',
        b'{"b": 1}',
        b'{"a": "x"}',
        b'{"a": 123456789012345678901234567890}',
        b'{"a": 9007199254740993}',
        b'{"a": 1e30}',
        b'{"a": "\\ud800"}',
        b"\xff\xfe",
        b"<script>alert(1)</script>",
        b'{"a":' * 2000 + b"1" + b"}" * 2000,
        b'["' + b"x" * 10_000_000 + b'"]',
        None,
    ]

    async def work(pool: WorkerPool) -> Judged:
        everything = await judged(pool, "", *values)
        assert everything.counts.matched == len(values) == len(everything.rows)
        assert all(len(row.text) < 3_000 and row.text.isascii() for row in everything.rows)
        for value in values:
            await pool.detail(Job(), record(0, value), SCHEMAS)
        return await judged(pool, "value.a > 0", *values)

    counts = with_pool(work).counts
    assert counts.matched == 3  # 1, 2^53 + 1 and 1e30
    assert (counts.missing, counts.too_long) == (1, 1)
    assert counts.scanned == len(values)
    assert counts.type_errors == len(values) - 5


def test_all_matches_of_a_chunk_are_rendered() -> None:
    found = with_pool(lambda pool: judged(pool, "", *([b"x"] * CHUNK)))
    assert [row.offset for row in found.rows] == list(range(CHUNK))


def test_a_filter_that_cannot_be_read_is_told_and_costs_no_worker() -> None:
    async def work(pool: WorkerPool) -> None:
        for _ in range(3):
            with pytest.raises(UsageError, match="cannot be read"):
                await judged(pool, "value. ==", b"{}")

    with_pool(work)


def test_schemas_are_asked_of_the_gateway() -> None:
    schemas = MemorySchemas()
    schema_id = schemas.register("t-value", "AVRO", '"long"')
    blob = b"\0" + schema_id.to_bytes(4, "big") + b"\x0e"

    async def work(pool: WorkerPool) -> None:
        job = Job(filter="value == 7")
        found = await pool.judge(pool.new_job(), job, [record(0, blob)], schemas)
        assert found.counts.matched == 1
        detail = await pool.detail(Job(), record(0, blob), schemas)
        assert [step["name"] for step in detail["value"]["trace"]] == [
            "frame",
            "registry",
            "schema",
        ]

    with_pool(work)


def cpu_s() -> float:
    """What the workers have used so far."""
    times = (one.cpu_times() for one in psutil.Process().children(recursive=True))
    return sum(one.user + one.system for one in times)


def test_a_hundred_thousand_messages() -> None:
    records = [record(offset, flight(offset)) for offset in range(MESSAGES)]
    chunks = [records[at : at + CHUNK] for at in range(0, MESSAGES, CHUNK)]
    job = Job(filter='value.id % 1000 == 5 && value.carrier == "UA"')

    async def work(pool: WorkerPool) -> tuple[Counts, float]:
        await judged(pool, "value.a == 1", b"{}")  # the workers are there
        number, counts, before_s = pool.new_job(), Counts(), cpu_s()
        for found in await asyncio.gather(
            *(pool.judge(number, job, chunk, SCHEMAS) for chunk in chunks)
        ):
            counts.add(found.counts)
        return counts, cpu_s() - before_s

    counts, used_s = with_pool(work)
    assert (counts.scanned, counts.matched) == (MESSAGES, MESSAGES // 1000)
    assert used_s < WORKERS * FILTER_S_MAX, used_s
