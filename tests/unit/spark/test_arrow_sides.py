"""Columns, partitioner, cold reads and tier tasks on Arrow data, without Spark."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest

from headwater.columnar.schema import KAFKA_SCHEMA, LOG_TABLE_SCHEMA
from headwater.errors import UsageError
from headwater_spark.sink.partitioner import by_key, choose
from headwater_spark.source.cold_files import ColdFiles
from headwater_spark.source.cold_read import cold_batches, in_order
from headwater_spark.source.columns import checked_schema
from headwater_spark.source.input_partitions import Split
from headwater_tier.data_files import write_file
from headwater_tier.delta import LiveFile
from headwater_tier.offset_ranges import TASK_OFFSETS_MIN, TierRange, task_ranges
from headwater_tier.reader import RowGroup
from headwater_tier.table_names import TableLocation

# Kafka's own vectors (UtilsTest.testMurmur2), as Java's signed ints.
MURMUR2 = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


def test_murmur2_is_kafkas() -> None:
    for key, expected in MURMUR2.items():
        partitions = 1_000_003
        found = by_key(pa.array([None, key], pa.binary()).slice(1), partitions)
        assert found[0] == (expected & 0x7FFFFFFF) % partitions


def test_choose_prefers_the_rows_own_partition_then_its_key_then_the_turn() -> None:
    keys = pa.array([b"21", None, b"21", None], pa.binary())
    wanted = pa.array([None, None, 4, 5], pa.int32())
    by_hash = int((MURMUR2[b"21"] & 0x7FFFFFFF) % 7)
    assert choose(keys, wanted, 4, 7, turn=9).tolist() == [by_hash, 2, 4, 5]
    assert choose(None, None, 2, 7, turn=1).tolist() == [1, 1]


def test_a_partition_out_of_range_is_named() -> None:
    with pytest.raises(UsageError, match="holds 7; the topic has partitions 0 to 6"):
        choose(None, pa.array([7], pa.int32()), 1, 7, turn=0)


def test_a_users_schema_may_choose_and_reorder_columns() -> None:
    chosen = pa.schema([KAFKA_SCHEMA.field("offset"), KAFKA_SCHEMA.field("value")])
    assert checked_schema(chosen) is chosen


@pytest.mark.parametrize(
    ("field", "words"),
    [(pa.field("valu", pa.binary()), "no column 'valu'"), (pa.field("value", pa.string()), "cast")],
)
def test_a_users_schema_may_not_invent(field: pa.Field, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        checked_schema(pa.schema([field]))


def _group(low: int, high: int) -> RowGroup:
    return RowGroup("l0-a.parquet", 0, 0, 0, low, high, 1)


def test_overlapping_row_groups_come_together() -> None:
    groups = [_group(20, 29), _group(0, 9), _group(25, 40), _group(10, 19), _group(41, 50)]
    together = [[(g.min_offset, g.max_offset) for g in part] for part in in_order(groups)]
    assert together == [[(0, 9)], [(10, 19)], [(20, 29), (25, 40)], [(41, 50)]]


def _rows(partition: int, offsets: range) -> pa.RecordBatch:
    count = len(offsets)
    columns = {
        "partition": pa.array([partition] * count, pa.int32()),
        "offset": pa.array(list(offsets), pa.int64()),
        "timestamp": pa.array([o * 1000 for o in offsets], pa.timestamp("us", tz="UTC")),
        "timestamp_type": pa.array([0] * count, pa.int8()),
        "key": pa.array([None if o % 2 else b"k" for o in offsets], pa.binary()),
        "value": pa.array([b"v%d" % o for o in offsets], pa.binary()),
    }
    arrays = [columns.get(f.name, pa.nulls(count, f.type)) for f in LOG_TABLE_SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=LOG_TABLE_SCHEMA)


def _cold(tmp_path: Path) -> ColdFiles:
    location = TableLocation(str(tmp_path), "t", UUID(int=1))
    files = []
    for number, batches in enumerate(
        [[_rows(0, range(100)), _rows(1, range(50))], [_rows(0, range(110, 200))]]
    ):
        facts = write_file(batches, location, level=0, attempt=UUID(int=number), now_ms=1)
        assert facts is not None
        files.append(LiveFile(facts.path, facts.size_bytes, facts.rows, 1, None, None, None, None))
    return ColdFiles(location, 3, {}, tuple(files))


def test_a_cold_split_is_exactly_its_rows_in_order(tmp_path: Path) -> None:
    files = _cold(tmp_path)
    split = Split("t", 0, 40, 150, cold=True)
    columns = ("value", "topic", "offset", "timestampType")
    table = pa.Table.from_batches(list(cold_batches(split, files, columns)))
    assert table.schema.names == list(columns)
    assert table.column("offset").to_pylist() == [*range(40, 100), *range(110, 150)]
    assert table.column("value")[0].as_py() == b"v40"
    assert table.column("topic")[0].as_py() == "t"
    assert table.column("timestampType").type == pa.int32()


def test_a_cold_read_of_one_column_needs_no_others(tmp_path: Path) -> None:
    batches = cold_batches(Split("t", 1, 0, 1000, cold=True), _cold(tmp_path), ("value",))
    values = pa.Table.from_batches(list(batches)).column("value").to_pylist()
    assert values == [b"v%d" % o for o in range(50)]


def test_shuffled_files_of_a_foreign_optimize_are_sorted(tmp_path: Path) -> None:
    files = _cold(tmp_path)
    foreign = tmp_path / "part-0.parquet"
    rows = pa.Table.from_batches([_rows(0, range(300, 310)), _rows(1, range(300, 310))])
    order = np.random.default_rng(1).permutation(rows.num_rows)
    import pyarrow.parquet as pq

    pq.write_table(rows.take(pa.array(order)), foreign)
    live = LiveFile(foreign.name, 1, 20, 1, None, None, None, None)
    shuffled = ColdFiles(files.location, 4, {}, (live,))
    batches = cold_batches(Split("t", 0, 302, 1000, cold=True), shuffled, ("offset",))
    found = pa.Table.from_batches(list(batches)).column("offset").to_pylist()
    assert found == list(range(302, 310))


def test_tier_tasks_share_a_lot_and_keep_a_little_together() -> None:
    little = [TierRange(p, 0, 0, 10) for p in range(6)]
    assert task_ranges(little, 4) == [tuple(little)]
    lot = [TierRange(0, 5, 5, 5 + 10 * TASK_OFFSETS_MIN), TierRange(1, None, 0, 10)]
    tasks = task_ranges(lot, 4)
    assert len(tasks) == 4
    pieces = [piece for task in tasks for piece in task]
    assert {piece.expected_end for piece in pieces if piece.partition == 0} == {5}
    at = 5
    for piece in (p for p in pieces if p.partition == 0):
        assert piece.start_offset == at
        at = piece.end_offset
    assert at == lot[0].end_offset
    assert [p for p in pieces if p.partition == 1] == [lot[1]]
