"""Old offsets are found in a table of many files without a look at each of them."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from headwater_tier.commit import commit_to
from headwater_tier.compaction import plan_fold, replace_files, rewrite
from headwater_tier.data_files import tier_range
from headwater_tier.delta import LogTable, TableAccessError
from headwater_tier.offset_ranges import plan_ranges
from headwater_tier.reader import TableReader
from headwater_tier.table_names import TableLocation
from tier_log import CountingEntropy, FixedClock, MemoryLog, location_at

FILES = 24
CLOCK, ENTROPY = FixedClock(), CountingEntropy()


class CountingReader(TableReader):
    """Notes the files that are opened."""

    def __init__(self, location: TableLocation) -> None:
        super().__init__(location)
        self.opened: list[str] = []

    def _open(self, path: str):  # type: ignore[no-untyped-def]
        self.opened.append(path)
        return super()._open(path)


@pytest.fixture(scope="module")
def uneven(tmp_path_factory: pytest.TempPathFactory) -> tuple[MemoryLog, TableLocation]:
    """Two partitions that grow at different speed: no file's bounds are those of one of them."""
    log, location = MemoryLog(), location_at(tmp_path_factory.mktemp("uneven"))
    table = LogTable.create(location, 2)
    for number in range(FILES):
        log.fill(0, 50)
        if number % 3 == 0:
            log.fill(1, 2)
        ranges = plan_ranges(table.snapshot.ends, log.bounds())
        facts = tier_range(log.fetch, ranges, location, clock=CLOCK, entropy=ENTROPY)
        assert facts is not None
        commit_to(table, ranges, [facts], clock=CLOCK)
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
        assert len(set(reader.opened)) <= 7, f"of {FILES} files"
        rows = [o for b in reader.rows_between(partition, 0, end) for o in b["offset"].to_pylist()]
        assert rows == list(range(end))


def test_a_lost_file_costs_its_own_offsets_only(
    uneven: tuple[MemoryLog, TableLocation],
) -> None:
    log, location = uneven
    # The file holds offsets 650 to 699 of partition 0, and none of partition 1.
    lost = Path(location.uri, TableReader(location).read(0, 650).paths[0])
    away = lost.rename(lost.with_suffix(".away"))
    reader = TableReader(location)
    assert reader.read(0, 649).end_offset == 650
    assert reader.read(0, 700).start_offset == 700
    assert len(list(reader.rows_between(1, 0, log.next[1]))) > 1
    with pytest.raises(TableAccessError, match=lost.name):
        reader.read(0, 650)
    away.rename(lost)


def test_a_fold_around_a_large_file_hides_none_of_its_rows(tmp_path: Path) -> None:
    """Folds of earlier versions may have spanned a large file, which stays; plans no longer do."""
    log, location, clock = MemoryLog(), location_at(tmp_path), FixedClock()
    table = LogTable.create(location, 1)
    for count in (50, 5000, 50):
        log.fill(0, count, size=200)
        clock.at_ms += 1000
        ranges = plan_ranges(table.snapshot.ends, log.bounds())
        facts = tier_range(log.fetch, ranges, location, clock=clock, entropy=ENTROPY)
        assert facts is not None
        commit_to(table, ranges, [facts], clock=clock)
    clock.at_ms += 3_700_000  # quiet for an hour: small files are folded
    assert plan_fold(table.snapshot.files, clock.now_ms(), bytes_target=200_000) == ()
    small = (f for f in table.snapshot.files if f.size_bytes < 100_000)
    chosen = sorted(small, key=lambda f: f.min_offset or 0)
    assert [(f.min_offset, f.max_offset) for f in chosen] == [(0, 49), (5050, 5099)]
    folded = rewrite(location, chosen, clock=clock, entropy=ENTROPY)
    replace_files(table, chosen, folded, clock=clock)
    reader = TableReader(location)
    rows = [o for b in reader.rows_between(0, 0, 5100) for o in b["offset"].to_pylist()]
    assert rows == list(range(5100))
    for offset in (0, 49, 50, 1000, 5049, 5050, 5099):
        assert offset in TableReader(location).read(0, offset).rows["offset"].to_pylist()
