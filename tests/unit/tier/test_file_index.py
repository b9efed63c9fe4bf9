"""Old offsets are found in a table of many files without a look at each of them."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from headwater_tier.commit import commit_facts, ensure_table
from headwater_tier.data_files import tier_range
from headwater_tier.delta import TableAccessError
from headwater_tier.offset_ranges import plan_ranges
from headwater_tier.reader import TableReader
from headwater_tier.table_names import TableLocation
from tier_log import CountingEntropy, FixedClock, MemoryLog, location_at

FILES = 40
CLOCK, ENTROPY = FixedClock(), CountingEntropy()


class CountingReader(TableReader):
    """Notes the files that are opened."""

    def __init__(self, location: TableLocation) -> None:
        super().__init__(location)
        self.opened: list[str] = []

    def _open(self, path: str):  # type: ignore[no-untyped-def]
        self.opened.append(path)
        return super()._open(path)


@pytest.fixture
def uneven(tmp_path: Path) -> tuple[MemoryLog, TableLocation]:
    """Two partitions that grow at different speed: no file's bounds are those of one of them."""
    log, location = MemoryLog(), location_at(tmp_path)
    for number in range(FILES):
        log.fill(0, 50)
        if number % 3 == 0:
            log.fill(1, 2)
        ranges = plan_ranges(ensure_table(location, 2), log.bounds())
        facts = tier_range(log.fetch, ranges, location, clock=CLOCK, entropy=ENTROPY)
        assert facts is not None
        commit_facts(location, ranges, [facts], clock=CLOCK)
    return log, location


def test_an_offset_is_found_by_few_looks_and_every_row_once(
    uneven: tuple[MemoryLog, TableLocation],
) -> None:
    log, location = uneven
    for partition, end in log.next.items():
        offset = random.Random(5).randrange(end)
        reader = CountingReader(location)
        found = reader.read(partition, offset)
        assert found.start_offset <= offset < found.end_offset
        assert len(set(reader.opened)) <= 8, "of 40 files"
        rows = [o for b in reader.rows_between(partition, 0, end) for o in b["offset"].to_pylist()]
        assert rows == list(range(end))


def test_a_lost_file_costs_its_own_offsets_only(
    uneven: tuple[MemoryLog, TableLocation],
) -> None:
    log, location = uneven
    reader = TableReader(location)
    lost = reader.read(0, 1_000).paths[0]
    Path(location.uri, lost).unlink()
    reader = TableReader(location)
    assert reader.read(0, 999).end_offset == 1_000
    assert reader.read(0, 1_050).start_offset == 1_050
    assert len(list(reader.rows_between(1, 0, log.next[1]))) > 1
    with pytest.raises(TableAccessError, match=lost):
        reader.read(0, 1_000)
