"""History of a topic from its Delta table: versions, jumps, the rows themselves."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from deltalake import DeltaTable

from headwater.client.values import ConsumerRecord
from headwater.errors import UsageError
from headwater_gateway.console.history.table_source import TableSource
from headwater_gateway.console.history.versions import (
    ends_after,
    history_page,
    jump_to_offset,
    jump_to_version,
)
from headwater_gateway.console.offset_spans import Span
from headwater_tier.commit import commit_facts, ensure_table
from headwater_tier.data_files import tier_range
from headwater_tier.offset_ranges import plan_ranges
from headwater_tier.table_names import TableLocation
from tier_log import CountingEntropy, FixedClock, MemoryLog, location_at

CLOCK = FixedClock()
BOTH = [0, 1]


def tier(log: MemoryLog, location: TableLocation, seed: int) -> None:
    ranges = plan_ranges(ensure_table(location, 2), log.bounds())
    entropy = CountingEntropy(seed * 1000)
    facts = tier_range(log.fetch, ranges, location, clock=CLOCK, entropy=entropy)
    commit_facts(location, ranges, [facts] if facts else [], clock=CLOCK)


@pytest.fixture
def location(tmp_path: Path) -> TableLocation:
    """Versions 1 to 4; partition 1 only from version 2 on; a gap before the last records."""
    log, found = MemoryLog(), location_at(tmp_path)
    log.fill(0, 30)
    tier(log, found, 1)
    log.fill(0, 10)
    log.fill(1, 20)
    tier(log, found, 2)
    log.append(1, [(9_000, None, None, [("h", b"1"), ("n", None)])])
    tier(log, found, 3)
    log.append(0, [(9_500, b"k", b"last")], gap=15)
    tier(log, found, 4)
    return found


def clean_up(location: TableLocation, until: int) -> None:
    """Delta's own clean-up of its log, done by hand."""
    table = DeltaTable(location.uri)
    table.load_as_version(until)
    table.create_checkpoint()
    for version in range(until):
        (Path(location.uri) / "_delta_log" / f"{version:020}.json").unlink()


def read(location: TableLocation, *spans: Span) -> list[ConsumerRecord]:
    async def go() -> list[ConsumerRecord]:
        source = await TableSource.open(location)
        return [record async for records in source.spans(spans) for record in records]

    return asyncio.run(go())


def test_what_each_version_added(location: TableLocation) -> None:
    page = history_page(location, BOTH)
    assert [(row.version, dict(row.added)) for row in page.rows] == [
        (4, {0: (40, 56)}),
        (3, {1: (20, 21)}),
        (2, {0: (30, 40), 1: (0, 20)}),
        (1, {0: (0, 30)}),
        (0, {}),
    ]
    assert (page.newest, page.oldest, page.older) == (4, 0, None)
    assert [row.kind for row in page.rows] == ["tier"] * 4 + ["create"]
    assert [row.version for row in history_page(location, BOTH, before=2).rows] == [1, 0]


def test_jumps_both_ways(location: TableLocation) -> None:
    assert jump_to_version(location, 2, BOTH).version == 2
    assert ends_after(location, 2, BOTH) == {0: 40, 1: 20}
    jump = jump_to_offset(location, 1, 20)
    assert (jump.version, jump.is_exact) == (3, True)
    with pytest.raises(UsageError, match="offset 56 is not tiered"):
        jump_to_offset(location, 0, 56)


def test_a_version_to_come_leads_to_the_newest(location: TableLocation) -> None:
    jump = jump_to_version(location, 99, BOTH)
    assert (jump.version, jump.is_exact) == (4, False) and "4 is the newest" in jump.text


def test_of_what_is_cleaned_up_the_nearest_answers_and_says_so(location: TableLocation) -> None:
    clean_up(location, 3)
    jump = jump_to_version(location, 1, BOTH)
    assert (jump.version, jump.is_exact) == (3, False)
    assert "version 1 is cleaned up" in jump.text and "3 is the nearest" in jump.text
    jump = jump_to_offset(location, 0, 5)
    assert (jump.version, jump.is_exact) == (3, False) and "or an earlier one" in jump.text
    assert ends_after(location, 1, BOTH) == {0: 40, 1: 21}
    page = history_page(location, BOTH)
    assert page.rows[-1].added == {}


def test_rows_come_back_as_the_records_that_they_were(location: TableLocation) -> None:
    found = read(location, Span(0, 25, 56), Span(1, 18, 21))
    places = [(one.partition, one.offset) for one in found]
    assert places == [(0, o) for o in [*range(25, 40), 55]] + [(1, 18), (1, 19), (1, 20)]
    assert found[-1] == ConsumerRecord(
        "flights", 1, 20, 9_000, 0, None, None, [("h", b"1"), ("n", None)], 0
    )


def test_bounds_times_and_a_missing_table(location: TableLocation, tmp_path: Path) -> None:
    async def go() -> None:
        source = await TableSource.open(location)
        assert await source.bounds([0, 1, 2]) == {0: (0, 56), 1: (0, 21), 2: (0, 0)}
        assert await source.at_time([0, 1], 9_000) == {0: 55, 1: 20}
        with pytest.raises(UsageError, match="no live tail"):
            source.tail({})
        with pytest.raises(UsageError, match=r"remote\.storage\.enable=true"):
            await TableSource.open(location_at(tmp_path / "elsewhere"))

    asyncio.run(go())
