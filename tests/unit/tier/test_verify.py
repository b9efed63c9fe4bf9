"""`verify` finds dropped, doubled, altered and foreign rows by offset, and equal rows equal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.client.blocking.record_client import EARLIEST
from headwater.columnar.decode import batches_to_arrow
from headwater.columnar.schema import HEADERS, LOG_TABLE_COLUMNS
from headwater.errors import UsageError
from headwater_tier.cli.storage_options import storage_options
from headwater_tier.commit import commit_facts, ensure_table
from headwater_tier.data_files import tier_range
from headwater_tier.offset_ranges import plan_ranges
from headwater_tier.table_names import TableLocation
from headwater_tier.verify import Digest, compare, describe, digest, table_rows
from headwater_tier.verify_command import document, verify_topic
from tier_log import CountingEntropy, FixedClock, MemoryLog, location_at


@pytest.fixture
def log() -> MemoryLog:
    memory = MemoryLog()
    memory.fill(0, 60)
    memory.append(0, [(5, None, b"", [("h", None), ("h", b"")]), (6, b"", None, [])], gap=4)
    memory.fill(1, 10)
    return memory


@pytest.fixture
def location(tmp_path: Path, log: MemoryLog) -> TableLocation:
    where, clock = location_at(tmp_path), FixedClock()
    ranges = plan_ranges(ensure_table(where, 2), log.bounds())
    facts = tier_range(log.fetch, ranges, where, clock=clock, entropy=CountingEntropy())
    assert facts is not None
    commit_facts(where, ranges, [facts], clock=clock)
    return where


class Client:
    """The calls of the blocking client that `verify` makes, over a MemoryLog."""

    def __init__(self, log: MemoryLog) -> None:
        self.log = log

    def metadata(self, topics: Any) -> Any:
        class Topic:
            partitions = tuple(self.log.next)

        return {topics[0]: Topic()}

    def list_offsets(self, wanted: Any, isolation: int = 0) -> Any:
        class Found:
            offset = 0

        out = {}
        for (topic, partition), which in wanted.items():
            found = Found()
            found.offset = 0 if which == EARLIEST else self.log.next[partition]
            out[topic, partition] = found
        return out

    def stream_batches(self, topic: str, partition: int, start: int, end: int, **_: Any) -> Any:
        class Chunk:
            def __init__(self, records: Any) -> None:
                self.records, self.aborted = records, ()

        yield Chunk(bytes(self.log.partitions[partition]))


def topic_side(log: MemoryLog, partition: int) -> list[pa.RecordBatch]:
    return [
        batches_to_arrow(
            bytes(log.partitions[partition]),
            start_offset=0,
            end_offset=1 << 40,
            partition=partition,
            columns=LOG_TABLE_COLUMNS,
        )
    ]


def rewrite(location: TableLocation, change: Any) -> None:
    (path,) = Path(location.uri).glob("*.parquet")
    table = change(pq.read_table(path))
    pq.write_table(table, path)


def verified(log: MemoryLog, location: TableLocation) -> Any:
    return verify_topic(Client(log), location)  # type: ignore[arg-type]


def test_equal_is_equal(log: MemoryLog, location: TableLocation) -> None:
    found = verified(log, location)
    assert found.equal and not found.problems
    assert [(r.topic_digest.rows, r.counts) for r in found.partitions] == [
        (62, (0, 0, 0, 0)),
        (10, (0, 0, 0, 0)),
    ]
    assert all(describe(r) == [] for r in found.partitions)


def test_checksums_in_json_are_strings(log: MemoryLog, location: TableLocation) -> None:
    """JavaScript and jq read numbers as doubles: 64 bits do not fit."""
    found = verified(log, location)
    rows = document(found)["partitions"]
    sums = [(r["topic_digest"]["checksum"], r["table_digest"]["checksum"]) for r in rows]
    assert sums == [(f"{r.topic_digest.checksum:016x}",) * 2 for r in found.partitions]
    assert any(report.topic_digest.checksum > 2**53 for report in found.partitions)


def test_offsets_not_tiered_are_counted_and_an_empty_table_is_not_equal(
    tmp_path: Path, log: MemoryLog, location: TableLocation
) -> None:
    log.fill(0, 5)
    log.fill(2, 4)
    found = verified(log, location)
    assert found.equal and found.hot_offsets == 9
    empty = location_at(tmp_path / "other")
    ensure_table(empty, 3)
    found = verified(log, empty)
    assert not found.equal and "nothing of flights is tiered yet" in found.problems[0]


def test_a_dropped_row_is_named(log: MemoryLog, location: TableLocation) -> None:
    rewrite(location, lambda t: pa.concat_tables([t.slice(0, 17), t.slice(18)]))
    found = verified(log, location)
    assert not found.equal and found.partitions[0].missing == (17,)
    assert describe(found.partitions[0]) == ["partition 0: 1 missing from the table: offsets 17"]
    assert found.partitions[1].equal


def test_a_doubled_row_is_named(log: MemoryLog, location: TableLocation) -> None:
    rewrite(location, lambda t: pa.concat_tables([t, t.slice(65, 1)]))
    found = verified(log, location)
    assert (found.partitions[0].equal, found.partitions[1].doubled) == (True, (3,))


def test_a_flipped_byte_is_named(log: MemoryLog, location: TableLocation) -> None:
    def flip(table: pa.Table) -> pa.Table:
        values = table.column("value").to_pylist()
        values[5] = b"X" + values[5][1:]
        at = table.schema.get_field_index("value")
        return table.set_column(at, "value", pa.array(values, pa.binary()))

    rewrite(location, flip)
    found = verified(log, location)
    assert found.partitions[0].altered == (5,) and found.partitions[1].equal


@pytest.mark.parametrize("column", ["key", "headers", "timestamp"])
def test_null_is_not_empty_and_every_column_counts(
    log: MemoryLog, location: TableLocation, column: str
) -> None:
    def change(table: pa.Table) -> pa.Table:
        cells = table.column(column).to_pylist()
        cells[60] = {"key": b"", "headers": [{"key": "h", "value": None}], "timestamp": None}[
            column
        ]
        at = table.schema.get_field_index(column)
        return table.set_column(at, column, pa.array(cells, table.schema.field(column).type))

    rewrite(location, change)
    assert verified(log, location).partitions[0].altered == (64,)


def test_rows_that_the_topic_never_had_are_named(log: MemoryLog, location: TableLocation) -> None:
    topic = topic_side(log, 0)
    report = compare(0, 0, 66, [topic[0].slice(0, 30)], topic)
    assert report.counts == (0, 0, 0, 32) and report.foreign[:2] == (30, 31)
    merged = report + compare(0, 66, 70, [], [])
    assert merged.counts == report.counts and merged.end_offset == 70


def test_a_table_beyond_its_topic_is_a_problem(log: MemoryLog, location: TableLocation) -> None:
    log.next[1] = 8
    assert "the table reaches to offset 10, the topic to 8" in verified(log, location).problems[0]


def test_digests_do_not_depend_on_order_and_add_up(log: MemoryLog) -> None:
    (rows,) = topic_side(log, 0)
    forwards = digest([rows])
    backwards = digest([rows.take(pa.array(range(rows.num_rows - 1, -1, -1)))])
    assert forwards == backwards == digest([rows.slice(0, 9)]) + digest([rows.slice(9)])
    assert forwards.rows == 62
    kafka = batches_to_arrow(
        bytes(log.partitions[0]), start_offset=0, end_offset=99, topic="flights", partition=0
    )
    assert digest([kafka]) == forwards
    assert digest([rows], partition=9) == Digest(0, 0)


def test_the_hash_is_fixed_for_ever() -> None:
    rows = pa.RecordBatch.from_pydict(
        {
            "partition": pa.array([3], pa.int32()),
            "offset": pa.array([1 << 40]),
            "timestamp": pa.array([1_700_000_000_123_000]).view(pa.timestamp("us", tz="UTC")),
            "key": pa.array([None], pa.binary()),
            "value": pa.array([b"0123456789"], pa.binary()),
            "headers": pa.array([[{"key": "h", "value": b""}]], HEADERS),
        }
    )
    assert digest([rows]).checksum == reference_hash(
        3, 1 << 40, 1_700_000_000_123, None, b"0123456789", [(b"h", b"")]
    )


def reference_hash(
    partition: int, offset: int, time_ms: int, key: Any, value: Any, headers: Any
) -> int:
    """The definition in plain Python (`headwater.columnar.row_hash`, version 1)."""
    mask = (1 << 64) - 1
    state = 0x48656164

    def fold(word: int) -> None:
        nonlocal state
        state = ((state ^ (word & mask)) * 0x9FB21C651E98DF25) & mask
        state ^= state >> 32

    def blob(data: bytes | None) -> None:
        fold(-1 if data is None else len(data))
        for at in range(0, len(data or b""), 8):
            fold(int.from_bytes((data or b"")[at : at + 8], "little"))

    for word in (partition, offset, time_ms):
        fold(word)
    blob(key)
    blob(value)
    fold(len(headers))
    for name, content in headers:
        blob(name)
        blob(content)
    state ^= state >> 33
    state = (state * 0xFF51AFD7ED558CCD) & mask
    return state ^ (state >> 33)


def test_table_rows_and_storage_options(log: MemoryLog, location: TableLocation) -> None:
    batches = list(table_rows(location, 0, 10, 20))
    assert sum(b.num_rows for b in batches) == 10
    assert storage_options(("a=b", "c=d=e")) == (("a", "b"), ("c", "d=e"))
    with pytest.raises(UsageError, match="give KEY=VALUE"):
        storage_options(("a",))
