"""Gaps wider than 2**31, as `headwater restore` leaves them: every reader passes over them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.client.blocking.fetch import next_offset_after
from headwater.columnar.decode import decode_batches
from headwater.columnar.schema import LOG_TABLE_COLUMNS
from headwater.records.batch import iter_headers
from headwater_tier.commit import commit_facts, ensure_table
from headwater_tier.compaction import compact
from headwater_tier.data_files import tier_range
from headwater_tier.delta import Change, LogTable
from headwater_tier.offset_ranges import plan_ranges
from headwater_tier.reader import TableReader
from headwater_tier.remote_log_worker import Worker
from headwater_tier.table_names import TableLocation
from headwater_tier.verify_command import verify_topic
from tier_log import CountingEntropy, FixedClock, MemoryLog, location_at

GAP = 1 << 33
OLD, NEW = 20, 10
FIRST = OLD + GAP
"""The first offset after the gap."""
CLOCK, ENTROPY = FixedClock(), CountingEntropy()


@pytest.fixture
def log() -> MemoryLog:
    memory = MemoryLog()
    memory.fill(0, OLD)
    return memory


def tier(log: MemoryLog, location: TableLocation) -> None:
    ranges = plan_ranges(ensure_table(location, 1), log.bounds())
    facts = tier_range(log.fetch, ranges, location, clock=CLOCK, entropy=ENTROPY)
    assert facts is not None
    commit_facts(location, ranges, [facts], clock=CLOCK)


@pytest.fixture
def location(tmp_path: Path, log: MemoryLog) -> TableLocation:
    """A restored topic's table: old rows, the gap, and nothing above it yet."""
    where = location_at(tmp_path)
    tier(log, where)
    LogTable(where).commit(Change("restore", 0, ends={0: FIRST}))
    log.next[0] = FIRST
    log.starts[0] = FIRST
    return where


def go_on(log: MemoryLog, location: TableLocation) -> None:
    """New records after the gap are tiered too."""
    log.fill(0, NEW)
    tier(log, location)


class Leader:
    """Serves fetches of tiered offsets as a broker does: by segments that a worker rebuilds."""

    def __init__(self, location: TableLocation, folder: Path) -> None:
        self._location, self._path = location, str(folder / "segment")
        self.fetches = 0

    def fetch(self, offset: int) -> bytes:
        """The batches from the one that has `offset` on."""
        self.fetches += 1
        request = {
            "do": "build",
            "uri": self._location.uri,
            "topic": self._location.topic,
            "topic_id": str(self._location.topic_id),
            "options": [],
            "partition": 0,
            "offset": offset,
            "path": self._path,
        }
        Worker().handle(request)
        data = Path(self._path).read_bytes()
        for at, header in iter_headers(data):
            if header.next_offset > offset:
                return data[at:]
        raise AssertionError(f"no batch has offset {offset}")

    def read(self, offset: int, end: int) -> Iterator[tuple[bytes, int]]:
        """(batches, next offset), fetch by fetch, up to `end`."""
        while offset < end:
            data = self.fetch(offset)
            decoded = decode_batches(
                data, start_offset=offset, end_offset=end, partition=0, columns=LOG_TABLE_COLUMNS
            )
            assert decoded.next_offset > offset, "a fetch within a gap makes progress"
            offset = decoded.next_offset
            yield data, offset


def offsets_of(leader: Leader, start: int, end: int) -> list[int]:
    found: list[int] = []
    for data, _ in leader.read(start, end):
        decoded = decode_batches(
            data, start_offset=start, end_offset=end, partition=0, columns=LOG_TABLE_COLUMNS
        )
        found += [o for chunk in decoded.chunks for o in chunk.column("offset").to_pylist()]
    return sorted(set(found))


@pytest.mark.parametrize("start", [OLD, OLD + 5, OLD + (1 << 31), OLD + (1 << 32) + 7, FIRST - 1])
def test_a_fetch_anywhere_in_the_gap_gets_to_its_end(
    log: MemoryLog, location: TableLocation, tmp_path: Path, start: int
) -> None:
    leader = Leader(location, tmp_path)
    assert offsets_of(leader, start, FIRST) == []
    assert leader.fetches <= 5
    go_on(log, location)
    assert offsets_of(leader, start, FIRST + NEW) == list(range(FIRST, FIRST + NEW))


def test_a_gap_is_empty_batches_in_a_row(location: TableLocation, tmp_path: Path) -> None:
    """A batch says its length in 32 bits."""
    headers = [header for _, header in iter_headers(Leader(location, tmp_path).fetch(OLD))]
    assert len(headers) > 3 and {header.record_count for header in headers} == {0}
    assert headers[0].base_offset == OLD
    assert [h.base_offset for h in headers[1:]] == [h.next_offset for h in headers[:-1]]
    assert headers[-1].next_offset == FIRST


def test_old_and_new_rows_are_read_through_the_gap(
    log: MemoryLog, location: TableLocation, tmp_path: Path
) -> None:
    go_on(log, location)
    wanted = [*range(OLD), *range(FIRST, FIRST + NEW)]
    assert offsets_of(Leader(location, tmp_path), 0, FIRST + NEW) == wanted
    batches = TableReader(location).rows_between(0, 0, FIRST + NEW)
    assert [o for rows in batches for o in rows.column("offset").to_pylist()] == wanted


def test_the_next_row_is_found_without_reading_all(log: MemoryLog, location: TableLocation) -> None:
    reader = TableReader(location)
    assert [reader.next_offset(0, at) for at in (0, 7, OLD, OLD + 9, FIRST, FIRST + 3)] == [
        0, 7, FIRST, FIRST, FIRST, FIRST + 3,
    ]  # fmt: skip
    go_on(log, location)
    compact(location, clock=CLOCK, entropy=ENTROPY, files_min=2)
    reader.refresh()
    assert reader.next_offset(0, OLD + 9) == FIRST, "one row group has both sides now"
    assert reader.next_offset(0, 3) == 3
    assert reader.next_offset(1, 5) == 5


@pytest.mark.parametrize("is_compacted", [False, True])
def test_the_runs_between_gaps(log: MemoryLog, location: TableLocation, is_compacted: bool) -> None:
    go_on(log, location)
    if is_compacted:
        compact(location, clock=CLOCK, entropy=ENTROPY, files_min=2)
    reader = TableReader(location, ("partition", "offset"))
    assert list(reader.runs(0, 0, FIRST + NEW)) == [(0, OLD), (FIRST, FIRST + NEW)]
    assert list(reader.runs(1, 0, FIRST)) == []


def test_compaction_writes_both_sides_of_the_gap_into_one_file(
    log: MemoryLog, location: TableLocation, tmp_path: Path
) -> None:
    go_on(log, location)
    assert compact(location, clock=CLOCK, entropy=ENTROPY, files_min=2) == 2
    assert len(LogTable(location).snapshot.files) == 1
    wanted = [*range(OLD), *range(FIRST, FIRST + NEW)]
    assert offsets_of(Leader(location, tmp_path), 0, FIRST + NEW) == wanted
    assert offsets_of(Leader(location, tmp_path), OLD + 5, FIRST + NEW) == wanted[OLD:]


def test_a_registrys_reader_gets_from_its_first_record_to_the_end(
    location: TableLocation, tmp_path: Path
) -> None:
    """It reads `_schemas` from the start until its position is the log's end: FIRST, while the
    restored log is empty. Its position is the SDK's, which moves over batches without records."""
    leader, at = Leader(location, tmp_path), 0
    found: list[int] = []
    while at < FIRST:
        data = leader.fetch(at)
        rows = decode_batches(
            data, start_offset=at, end_offset=FIRST, partition=0, columns=LOG_TABLE_COLUMNS
        )
        found += [o for chunk in rows.chunks for o in chunk.column("offset").to_pylist()]
        following, whole, _ = next_offset_after(memoryview(data), at)
        assert following > at and whole == len(data)
        at = following
    assert (found, at) == (list(range(OLD)), FIRST)


class Client:
    """The calls of the blocking client that `verify` makes."""

    def __init__(self, leader: Leader, end: int) -> None:
        self._leader, self._end = leader, end

    def metadata(self, topics: Any) -> Any:
        class Topic:
            partitions = (0,)

        return {topics[0]: Topic()}

    def list_offsets(self, wanted: Any, isolation: int = 0) -> Any:
        class Found:
            def __init__(self, offset: int) -> None:
                self.offset = offset

        return {key: Found(0 if isolation == 0 else self._end) for key in wanted}

    def stream_batches(self, topic: str, partition: int, start: int, end: int, **_: Any) -> Any:
        class Chunk:
            def __init__(self, records: bytes) -> None:
                self.records, self.aborted = records, ()

        for data, _offset in self._leader.read(start, end):
            yield Chunk(data)


@pytest.mark.parametrize("is_compacted", [False, True])
def test_verify_compares_both_sides_and_the_gap_at_once(
    log: MemoryLog, location: TableLocation, tmp_path: Path, is_compacted: bool
) -> None:
    go_on(log, location)
    if is_compacted:
        compact(location, clock=CLOCK, entropy=ENTROPY, files_min=2)
    leader = Leader(location, tmp_path)
    found = verify_topic(Client(leader, FIRST + NEW), location)  # type: ignore[arg-type]
    assert found.equal and not found.problems
    assert [report.table_digest.rows for report in found.partitions] == [OLD + NEW]
    assert leader.fetches < 20
