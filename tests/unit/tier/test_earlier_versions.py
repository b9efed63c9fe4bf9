"""Earlier versions of a log table: their tiered ends, by version and by time of the commit."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from deltalake import DeltaTable

from headwater_tier.commit import commit_facts, ensure_table
from headwater_tier.data_files import tier_range
from headwater_tier.delta import LogTable, TableAccessError
from headwater_tier.offset_ranges import plan_ranges
from headwater_tier.table_names import TableLocation
from tier_log import CountingEntropy, FixedClock, MemoryLog, location_at

CLOCK = FixedClock()
ENDS = [{}, {0: 20}, {0: 50, 1: 5}]
"""Version -> tiered ends."""


@pytest.fixture
def location(tmp_path: Path) -> TableLocation:
    found, log = location_at(tmp_path), MemoryLog()
    for seed, fills in enumerate([{0: 20}, {0: 30, 1: 5}]):
        for partition, rows in fills.items():
            log.fill(partition, rows)
        ranges = plan_ranges(ensure_table(found, 2), log.bounds())
        facts = tier_range(
            log.fetch, ranges, found, clock=CLOCK, entropy=CountingEntropy(seed * 1000)
        )
        assert facts is not None
        commit_facts(found, ranges, [facts], clock=CLOCK)
    return found


def commits(location: TableLocation) -> dict[int, int]:
    """Version -> the time of its commit in milliseconds."""
    rows = DeltaTable(location.uri).history()
    return {row["version"]: row["timestamp"] for row in rows}


def time(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


@pytest.mark.parametrize("version", range(len(ENDS)))
def test_a_version_has_the_ends_of_its_commit(location: TableLocation, version: int) -> None:
    assert LogTable(location, at=version).snapshot.ends == ENDS[version]


def test_a_version_that_was_never_committed_is_named(location: TableLocation) -> None:
    with pytest.raises(TableAccessError, match="has no version 3: the newest is 2"):
        LogTable(location, at=3)


def test_a_time_is_the_newest_version_committed_by_then(location: TableLocation) -> None:
    committed = commits(location)
    for at in (*committed.values(), committed[2] + 3_600_000):
        newest = max(version for version, ms in committed.items() if ms <= at)
        found = LogTable(location, at=time(at)).snapshot
        assert (found.version, found.ends) == (newest, ENDS[newest])


def test_before_its_first_commit_the_table_held_nothing(location: TableLocation) -> None:
    assert LogTable(location, at=time(commits(location)[0] - 3_600_000)).snapshot.ends == {}


def test_a_time_before_a_cleaned_log_is_an_error(location: TableLocation) -> None:
    first_ms = commits(location)[0]
    DeltaTable(location.uri).create_checkpoint()
    for version in (0, 1):
        (Path(location.uri) / "_delta_log" / f"{version:020}.json").unlink()
    assert LogTable(location, at=2).snapshot.ends == ENDS[2]
    with pytest.raises(TableAccessError, match="reaches back to version 2 only"):
        LogTable(location, at=time(first_ms - 3_600_000))
    with pytest.raises(TableAccessError, match=r"version 1 of .* its log was cleaned up"):
        LogTable(location, at=1)
