"""From an offset to the first version that holds it, and from a version to its offsets."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from headwater.errors import UsageError
from headwater_tier.delta import Change, LogTable
from headwater_tier.table_names import TableLocation
from headwater_tier.versions import HeldSince, ends_at, version_of
from tier_log import location_at

ENDS = [(0, 20), (0, 50), (1, 5), (0, 51), (1, 9), (0, 90)]
"""Of versions 1 to 6: (partition, its end)."""
START = 3


@pytest.fixture
def location(tmp_path: Path) -> TableLocation:
    found = location_at(tmp_path)
    table = LogTable.create(found, 2)
    for partition, end in ENDS:
        starts = {partition: START} if partition not in table.snapshot.ends else None
        table.commit(Change("tier", 0, ends={partition: end}, starts=starts))
        table.refresh()
    return found


@pytest.mark.parametrize("partition", [0, 1])
def test_every_offset_is_in_the_first_version_that_ends_above_it(
    location: TableLocation, partition: int
) -> None:
    last = max(end for p, end in ENDS if p == partition)
    for offset in range(START, last):
        wanted = next(
            version
            for version, (p, end) in enumerate(ENDS, start=1)
            if p == partition and end > offset
        )
        found = version_of(location, partition, offset)
        assert (found.version, found.is_oldest) == (wanted, False), offset
        assert found.committed_ms > 0


@pytest.mark.parametrize(
    ("partition", "offset", "words"),
    [
        (0, 90, "t-0 offset 90 is not tiered: its table ends at 90"),
        (2, 0, "t-2 offset 0 is not tiered: nothing of it is tiered"),
        (0, 2, "t-0 offset 2 is below the log start 3: its record is deleted"),
    ],
)
def test_an_offset_outside_of_the_table_is_named(
    location: TableLocation, partition: int, offset: int, words: str
) -> None:
    with pytest.raises(UsageError, match=words.replace("t-", f"{location.topic}-")):
        version_of(location, partition, offset)


def test_beyond_the_logs_retention_the_oldest_version_left_is_named(
    location: TableLocation,
) -> None:
    table = DeltaTable(location.uri)
    table.load_as_version(3)
    table.create_checkpoint()
    for version in range(3):
        (Path(location.uri) / "_delta_log" / f"{version:020}.json").unlink()
    found = version_of(location, 0, 30)
    assert (found.version, found.is_oldest) == (3, True)
    assert version_of(location, 0, 60) == HeldSince(6, found_ms(location, 6))


def found_ms(location: TableLocation, version: int) -> int:
    rows = DeltaTable(location.uri).history()
    return next(row["timestamp"] for row in rows if row["version"] == version)


def test_a_version_reaches_up_to_its_ends(location: TableLocation) -> None:
    assert ends_at(location, 3) == (3, {0: 50, 1: 5})
    assert ends_at(location, 0) == (0, {})


def test_a_topic_without_a_table_has_no_versions(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no table"):
        version_of(location_at(tmp_path), 0, 1)
    with pytest.raises(UsageError, match="has no table"):
        ends_at(location_at(tmp_path), 1)
