"""Log starts, compaction, repair and vacuum: rows and readers are not affected."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from headwater.columnar.decode import batches_to_arrow
from headwater.columnar.schema import LOG_TABLE_COLUMNS
from headwater.errors import UsageError
from headwater_tier.commit import commit_facts, ensure_table
from headwater_tier.compaction import DAY_MS, compact
from headwater_tier.data_files import tier_range
from headwater_tier.delta import LogTable, TableStateError
from headwater_tier.fence_repair import repair
from headwater_tier.log_starts import move_starts
from headwater_tier.offset_ranges import plan_ranges
from headwater_tier.reader import OffsetNotTieredError, TableReader
from headwater_tier.table_names import TableLocation
from headwater_tier.vacuum import vacuum
from headwater_tier.verify import digest, table_rows
from tier_log import CountingEntropy, FixedClock, MemoryLog, location_at

CLOCK = FixedClock()
ENTROPY = CountingEntropy(50_000)


def tier(log: MemoryLog, location: TableLocation) -> None:
    ranges = plan_ranges(ensure_table(location, 2), log.bounds())
    facts = tier_range(log.fetch, ranges, location, clock=CLOCK, entropy=ENTROPY)
    commit_facts(location, ranges, [facts] if facts else [], clock=CLOCK)


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog()


@pytest.fixture
def location(tmp_path: Path, log: MemoryLog) -> TableLocation:
    where = location_at(tmp_path)
    for _ in range(6):
        log.fill(0, 40)
        log.fill(1, 7)
        tier(log, where)
    return where


def offsets_read(reader: TableReader, partition: int, start: int, end: int) -> list[int]:
    return [
        offset
        for batch in reader.rows_between(partition, start, end)
        for offset in batch.column("offset").to_pylist()
    ]


def test_reading_gives_every_row_in_order_from_any_offset(
    log: MemoryLog, location: TableLocation
) -> None:
    reader = TableReader(location)
    for start in (0, 1, 39, 40, 200, 239):
        assert offsets_read(reader, 0, start, 240) == list(range(start, 240))
    with pytest.raises(OffsetNotTieredError, match="offset 240 is not in"):
        reader.read(0, 240)


def test_compaction_keeps_rows_and_fence(log: MemoryLog, location: TableLocation) -> None:
    before = LogTable(location).snapshot
    old_reader = TableReader(location)
    assert compact(location, clock=CLOCK, entropy=ENTROPY) == 0
    assert compact(location, clock=CLOCK, entropy=ENTROPY, files_min=6) == 6
    after = LogTable(location).snapshot
    assert (after.ends, after.starts, after.rows) == (before.ends, before.starts, before.rows)
    assert [f.path[:3] for f in after.files] == ["l1-"]
    for partition, end in log.next.items():
        topic = batches_to_arrow(
            bytes(log.partitions[partition]),
            start_offset=0,
            end_offset=end,
            partition=partition,
            columns=LOG_TABLE_COLUMNS,
        )
        assert digest([topic]) == digest(table_rows(location, partition, 0, end))
        assert offsets_read(old_reader, partition, 0, end) == list(range(end))
        assert offsets_read(TableReader(location), partition, 0, end) == list(range(end))
    tier(log, location) if log.fill(0, 3) else None
    assert LogTable(location).snapshot.ends[0] == 240


def test_files_wholly_below_the_moved_starts_are_removed(
    log: MemoryLog, location: TableLocation
) -> None:
    assert move_starts(location, {0: 95, 1: 14, 9: 5}, clock=CLOCK) == {0: 95, 1: 14}
    snapshot = LogTable(location).snapshot
    assert len(snapshot.files) == 4 and snapshot.rows == 4 * 47
    reader = TableReader(location)
    assert offsets_read(reader, 0, 95, 240) == list(range(95, 240))
    with pytest.raises(OffsetNotTieredError):
        reader.read(0, 94)
    assert move_starts(location, {0: 10}, clock=CLOCK)[0] == 95
    assert move_starts(location, {0: 999, 1: 999}, clock=CLOCK) == {0: 240, 1: 42}
    assert LogTable(location).snapshot.rows == 0
    log.fill(0, 5)
    tier(log, location)
    assert offsets_read(TableReader(location), 0, 240, 245) == [240, 241, 242, 243, 244]


def test_a_users_optimize_is_read_correctly(log: MemoryLog, location: TableLocation) -> None:
    reader = TableReader(location)
    DeltaTable(location.uri).optimize.compact()
    snapshot = reader.refresh()
    assert len(snapshot.files) == 1
    assert offsets_read(reader, 0, 17, 240) == list(range(17, 240))
    assert offsets_read(reader, 1, 0, 42) == list(range(42))


def test_an_unsorted_foreign_file_of_several_partitions_is_read_correctly(
    log: MemoryLog, location: TableLocation
) -> None:
    import json
    import random

    import pyarrow.parquet as pq
    from deltalake.transaction import AddAction, RemoveAction

    table = DeltaTable(location.uri)
    rows = pa.concat_tables([pq.read_table(uri) for uri in table.file_uris()])
    order = list(range(rows.num_rows))
    random.Random(3).shuffle(order)
    path = Path(location.uri) / "part-00000-foreign.parquet"
    pq.write_table(rows.take(pa.array(order)), path, row_group_size=37)
    stats = json.dumps({"numRecords": rows.num_rows})
    actions: list[AddAction | RemoveAction] = [
        AddAction(path.name, path.stat().st_size, {}, 1, False, stats)
    ]
    adds = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    actions += [RemoveAction(f["path"], False, 1, f["size_bytes"], {}) for f in adds]
    table.create_write_transaction(actions, "append", table.schema())
    reader = TableReader(location)
    for start in (0, 100, 239):
        assert offsets_read(reader, 0, start, 240) == list(range(start, 240))
    assert offsets_read(reader, 1, 5, 42) == list(range(5, 42))


def test_repair_rebuilds_a_fence_from_data(log: MemoryLog, location: TableLocation) -> None:
    table = DeltaTable(location.uri)
    versions = table.version()
    table.restore(versions - 1)
    with pytest.raises(TableStateError):
        LogTable(location)
    ends = repair(location, clock=CLOCK)
    assert ends == {0: 200, 1: 35}
    assert LogTable(location).snapshot.rows == 5 * 47
    tier(log, location)  # what RESTORE took away is tiered again
    assert offsets_read(TableReader(location), 0, 0, 240) == list(range(240))


def test_repair_refuses_doubled_rows(log: MemoryLog, location: TableLocation) -> None:
    import pyarrow.parquet as pq
    from deltalake import write_deltalake

    table = DeltaTable(location.uri)
    write_deltalake(table, pq.read_table(table.file_uris()[0]).slice(0, 3), mode="append")
    with pytest.raises(TableStateError, match="3 offsets more than once"):
        repair(location, clock=CLOCK)


def test_vacuum_deletes_only_old_orphans(log: MemoryLog, location: TableLocation) -> None:
    folder = Path(location.uri)
    fresh, old = folder / "l0-fresh.parquet", folder / "l0-old.parquet"
    for path in (fresh, old):
        path.write_bytes(b"orphan")
    os.utime(old, (1_000_000_000, 1_000_000_000))
    assert vacuum(location, age_ms=DAY_MS) == [old.name]
    assert fresh.exists() and len(LogTable(location).snapshot.files) == 6
    with pytest.raises(UsageError, match="less than a day"):
        vacuum(location, age_ms=DAY_MS - 1)
