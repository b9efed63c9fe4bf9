"""Which small files are folded, and how many are left after a day of trickle."""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

import pytest

from headwater_tier.compaction import (
    DAY_MS,
    HOUR_MS,
    L1_BYTES_TARGET,
    QUIET_MS,
    neighbours,
    plan_fold,
)
from headwater_tier.delta import LiveFile
from headwater_tier.table_names import data_file

NOON_MS = 20_000 * DAY_MS + DAY_MS // 2


@dataclass
class Table:
    """A table's files: commits add L0 files, folds replace files as the service does."""

    now_ms: int = NOON_MS
    files: list[LiveFile] = field(default_factory=list)
    made: int = 0
    written_bytes: int = 0

    def add(self, size_bytes: int, level: int = 0) -> None:
        self._put(size_bytes, level, self.made + 1, self.made + 1)

    def _put(self, size_bytes: int, level: int, first: int, last: int) -> None:
        self.made += 1
        path = data_file(level, UUID(int=self.made))
        self.files.append(LiveFile(path, size_bytes, 1, self.now_ms, 0, 0, first, last))

    def fold(self) -> int:
        chosen = plan_fold(self.files, self.now_ms)
        if chosen:
            gone = {f.path for f in chosen}
            self.files = [f for f in self.files if f.path not in gone]
            size = sum(f.size_bytes for f in chosen)
            self.written_bytes += size
            bounds = [bound for f in chosen for bound in (f.min_offset or 0, f.max_offset or 0)]
            self._put(size, 1, min(bounds), max(bounds))
        return len(chosen)


def test_few_commits_are_left_alone() -> None:
    table = Table()
    for _ in range(63):
        table.add(1000)
        table.now_ms += 3000
    assert table.fold() == 0


def test_64_commits_are_folded() -> None:
    table = Table()
    for _ in range(64):
        table.add(1000)
    assert (table.fold(), len(table.files)) == (64, 1)


def test_older_files_join_a_fold_that_is_half_as_large() -> None:
    table = Table()
    table.add(300_000, level=1)
    table.add(128_000, level=1)
    for _ in range(64):
        table.add(1000)
    assert table.fold() == 66  # 64 kB and 128 kB, and then 192 kB and 300 kB
    table.add(1000_000, level=1)
    for _ in range(64):
        table.add(1000)
    assert table.fold() == 64  # 1 MB is far more than 64 kB


def test_a_folded_file_never_exceeds_the_target() -> None:
    table = Table()
    table.add(L1_BYTES_TARGET // 2 - 1, level=1)
    for _ in range(64):
        table.add(L1_BYTES_TARGET // 100)
    table.fold()
    assert max(f.size_bytes for f in table.files) <= L1_BYTES_TARGET


def test_a_quiet_topic_ends_with_one_file() -> None:
    table = Table()
    for _ in range(10):
        table.add(1000)
    table.now_ms += QUIET_MS
    assert (table.fold(), len(table.files), table.fold()) == (10, 1, 0)


def test_files_of_others_and_large_ones_stay() -> None:
    table = Table()
    for _ in range(70):
        table.add(L1_BYTES_TARGET // 2)
    assert table.fold() == 0
    foreign = LiveFile("part-0001.snappy.parquet", 10, 1, table.now_ms, 0, 0, 1, 1)
    table.files = [foreign] * 70
    assert table.fold() == 0


def test_a_fold_never_spans_a_file_that_stays() -> None:
    table = Table()
    for _ in range(5):
        table.add(1000)
    table.add(L1_BYTES_TARGET)
    for _ in range(3):
        table.add(1000)
    table.now_ms += DAY_MS
    assert (table.fold(), table.fold(), table.fold()) == (5, 3, 0)
    assert len(table.files) == 3


def test_a_commit_during_a_fold_is_behind_what_was_folded() -> None:
    older = LiveFile(data_file(1, UUID(int=1)), 1000, 1, NOON_MS, 0, 1, 0, 9)
    large = LiveFile(data_file(1, UUID(int=2)), L1_BYTES_TARGET, 1, NOON_MS + 50, 0, 1, 10, 99)
    during = LiveFile(data_file(0, UUID(int=3)), 1000, 1, NOON_MS + 40, 0, 1, 100, 101)
    elsewhere = LiveFile(data_file(0, UUID(int=4)), 1000, 1, NOON_MS + 90, 1, 1, 5, 6)
    files = [during, large, older, elsewhere]
    assert neighbours(files, L1_BYTES_TARGET) == [[older], [during, elsewhere]]
    assert plan_fold(files, NOON_MS + DAY_MS) == (during, elsewhere)


@pytest.mark.parametrize(
    ("size_bytes", "every_ms"), [(1_500, 3_000), (60_000, 3_000), (4_000, 60_000), (900, 20_000)]
)
def test_a_day_of_trickle_leaves_at_most_twice_the_ideal_number_of_files(
    size_bytes: int, every_ms: int
) -> None:
    table = Table(now_ms=NOON_MS - NOON_MS % DAY_MS)
    end_ms, total, most = table.now_ms + DAY_MS, 0, 0
    while table.now_ms < end_ms:
        table.add(size_bytes)
        total += size_bytes
        table.now_ms += every_ms
        while table.fold():
            pass
        most = max(most, len(table.files))
    ideal = -(-total // L1_BYTES_TARGET)
    assert len(table.files) <= 2 * ideal
    assert most <= 80 + ideal
    assert table.written_bytes <= 12 * total  # each row is rewritten a few times only


def test_a_trickle_that_stops_is_folded_within_the_hour() -> None:
    table = Table()
    for _ in range(30):
        table.add(1000)
    table.now_ms += HOUR_MS
    table.fold()
    assert len(table.files) == 1
