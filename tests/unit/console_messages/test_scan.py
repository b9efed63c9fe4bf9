"""Scans over logs with gaps: which rows come, in which order, and where the next page begins."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence, Set
from typing import Any

import pytest

from headwater.client.values import ConsumerRecord
from headwater.errors import UsageError
from headwater.testing.clocks import ManualClock
from headwater_gateway.console.messages.jobs import Counts, Job, Judged, Rendered, WorkerEndedError
from headwater_gateway.console.messages.scan import Found, Scan
from headwater_gateway.console.messages.scan_plan import (
    chunks,
    cursor_after,
    cursor_before,
    newest_first,
    short_of,
    window,
)
from headwater_gateway.console.messages.topic_reader import TopicReader
from headwater_gateway.console.offset_spans import Span
from headwater_tier.typed.memory_schemas import MemorySchemas
from unit.console_messages.memory_logs import FakeConsumer, record


class FakePool:
    """Judges in this process."""

    def __init__(
        self, matches: Callable[[ConsumerRecord], bool], slow: set[int] = frozenset()
    ) -> None:  # type: ignore[assignment]
        self._matches, self._slow = matches, slow

    def new_job(self) -> int:
        return 1

    async def judge(
        self, number: int, job: Job, records: Sequence[ConsumerRecord], schemas: Any
    ) -> Judged:
        await asyncio.sleep(0)
        for index, one in enumerate(records):
            if one.offset in self._slow:
                raise WorkerEndedError(index, "it took more than 200 ms")
        kept = [one for one in records if self._matches(one)]
        rows = [Rendered(r.timestamp, r.partition, r.offset, json.dumps(r.offset)) for r in kept]
        return Judged(Counts(scanned=len(records), matched=len(kept)), rows)


LOG = {
    0: [record(0, offset, 1000 + offset) for offset in range(0, 100, 3)],
    1: [record(1, offset, 1050 + offset) for offset in range(10, 40)],
    2: [],
}
ALL = sorted((one.partition, one.offset) for records in LOG.values() for one in records)
ENDS = {0: 130, 1: 41, 2: 7}


def scan(
    run: Callable[[Scan, TopicReader], Any],
    matches: Callable[[ConsumerRecord], bool] = lambda _: True,
    slow: Set[int] = frozenset(),
    has_filter: bool = False,
) -> tuple[list[Found], Scan]:
    async def go() -> tuple[list[Found], Scan]:
        reader = TopicReader(FakeConsumer(LOG, ENDS), "t")
        job = Job(filter="x" if has_filter else "")
        pool: Any = FakePool(matches, slow)
        one = Scan(pool, MemorySchemas(), job, ManualClock())
        return [found async for found in run(one, reader)], one

    return asyncio.run(go())


def places(founds: list[Found]) -> list[tuple[int, int]]:
    return [(row.partition, row.offset) for found in founds for row in found.rows]


BOUNDS = {0: (0, 130), 1: (10, 41), 2: (0, 7)}
SPANS = [Span(0, 0, 130), Span(1, 10, 41), Span(2, 0, 7)]


def test_forward_reads_all_and_ends_behind_markers() -> None:
    founds, one = scan(lambda s, r: s.forward(r, SPANS, 1000))
    assert sorted(places(founds)) == sorted(
        (r.partition, r.offset) for p in LOG.values() for r in p
    )
    assert founds[-1].end == "log"
    assert one.counts.scanned == len(places(founds))


@pytest.mark.parametrize("rows", [1, 5, 7])
def test_forward_in_pages_gives_each_record_once(rows: int) -> None:
    seen: list[tuple[int, int]] = []
    spans = SPANS
    for _ in range(100):
        founds, _ = scan(lambda s, r: s.forward(r, spans, rows))  # noqa: B023
        seen += places(founds)
        if founds[-1].end == "log":
            break
        assert len(places(founds)) == rows
        cursor = founds[-1].cursor
        spans = [Span(s.partition, cursor[s.partition], s.end) for s in spans]
    assert sorted(seen) == ALL


@pytest.mark.parametrize("rows", [1, 4, 10])
@pytest.mark.parametrize("has_filter", [False, True])
def test_newest_first_in_pages_gives_each_match_once(rows: int, has_filter: bool) -> None:
    seen: list[tuple[int, int]] = []
    bounds = BOUNDS
    for _ in range(200):
        founds, _ = scan(
            lambda s, r: s.newest(r, bounds, rows),  # noqa: B023
            lambda one: one.offset % 2 == 0,
            has_filter=has_filter,
        )
        page = places(founds)
        seen += page
        if founds[-1].end == "log":
            break
        bounds = {p: (start, founds[-1].cursor[p]) for p, (start, _) in bounds.items()}
    wanted = [(r.partition, r.offset) for p in LOG.values() for r in p if r.offset % 2 == 0]
    assert sorted(seen) == sorted(wanted)
    for partition in LOG:
        own = [offset for p, offset in seen if p == partition]
        assert own == sorted(own, reverse=True)


def test_newest_first_takes_the_latest_of_all_partitions() -> None:
    founds, _ = scan(lambda s, r: s.newest(r, BOUNDS, 3))
    assert places(founds) == [(0, 99), (0, 96), (0, 93)]


def test_a_record_that_ends_its_worker_is_named_and_left_out() -> None:
    founds, one = scan(lambda s, r: s.forward(r, SPANS, 1000), slow={15})
    assert len(one.named) == 2 and "t-0 offset 15" in " ".join(one.named)
    assert (0, 15) not in places(founds) and (0, 18) in places(founds)
    assert founds[-1].end == "log"


def test_three_such_records_end_the_scan() -> None:
    founds, one = scan(lambda s, r: s.forward(r, SPANS, 1000), slow=set(range(1000)))
    assert founds[-1].end == "records" and len(one.named) >= 3


def test_one_record_or_what_is_there_instead() -> None:
    async def read(offset: int) -> ConsumerRecord:
        return await TopicReader(FakeConsumer(LOG, ENDS), "t").one(0, offset)

    assert asyncio.run(read(96)).offset == 96
    for offset, told in ((97, "next one is 99"), (500, "[0, 130)"), (110, "none follows")):
        with pytest.raises(UsageError) as caught:
            asyncio.run(read(offset))
        assert told in str(caught.value)


def test_a_window_is_of_all_partitions_and_bounded() -> None:
    bounds = {0: (3, 20_000), 1: (0, 11), 2: (5, 5)}
    assert window({0: 20_000, 1: 11, 2: 5}, bounds, 30) == [Span(0, 19_990, 20_000), Span(1, 1, 11)]
    assert window({0: 20_000}, bounds, 10**9) == [Span(0, 3, 20_000)]
    assert window({}, bounds, 10) == []


def test_a_partition_behind_a_gap_is_read_further() -> None:
    bounds = {0: (0, 100), 1: (0, 10), 2: (50, 60)}
    found = [Rendered(1, 1, 9, ""), Rendered(1, 1, 8, "")]
    assert short_of({0: 90, 1: 5, 2: 50}, bounds, found, 2) == {0: 90}


def test_order_within_a_partition_is_that_of_offsets() -> None:
    rows = [Rendered(5, 0, 1, ""), Rendered(1, 0, 2, ""), Rendered(3, 1, 9, "")]
    assert [(r.partition, r.offset) for r in newest_first(rows)] == [(1, 9), (0, 2), (0, 1)]


def test_cursors() -> None:
    records = [record(0, 1), record(1, 5), record(0, 2)]
    assert cursor_after({0: 0, 1: 4}, records, None) == {0: 3, 1: 6}
    assert cursor_after({0: 0, 1: 4}, records, Rendered(0, 1, 5, "")) == {0: 2, 1: 6}
    spans = [Span(0, 10, 20), Span(1, 0, 5)]
    assert cursor_before(spans, [], is_whole=True) == {0: 10, 1: 0}
    assert cursor_before(spans, [Rendered(0, 0, 15, "")], is_whole=False) == {0: 15, 1: 5}


def test_chunks_are_bounded_in_records_and_bytes() -> None:
    many = [record(0, offset) for offset in range(4500)]
    assert [len(chunk) for chunk in chunks(many)] == [2000, 2000, 500]
    large = [one._replace(value=b"x" * 5_000_000) for one in many[:4]]
    assert [len(chunk) for chunk in chunks(large)] == [2, 2]
