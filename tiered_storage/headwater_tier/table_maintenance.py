"""Maintenance of a log table: log starts, compaction, repair of the fence, vacuum.

Every commit is made against a checked snapshot with retries off, as in tiering. A commit that loses
against another one changes nothing, and the caller's next round plans again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headwater.clock import Clock
from headwater.columnar.schema import LOG_TABLE_COLUMNS, LOG_TABLE_SCHEMA
from headwater.entropy import Entropy
from headwater.errors import UsageError
from headwater_tier.data_files import check_file, write_file
from headwater_tier.delta import (
    Change,
    LiveFile,
    LogTable,
    Snapshot,
    TableAccessError,
    TableStateError,
    filesystem,
)
from headwater_tier.live_files import first_within
from headwater_tier.plan import FileFacts, TableLocation
from headwater_tier.reader import RowGroup, index_groups
from headwater_tier.table_names import rows_txn

COMPACT_FILES_MIN = 64
"""L0 files that are compacted into one L1 file."""
L1_BYTES_TARGET = 128 << 20
L0_PREFIX = "l0-"
HOUR_MS = 3600 * 1000
DAY_MS = 24 * HOUR_MS
VACUUM_AGE_MIN_MS = DAY_MS
VACUUM_AGE_DEFAULT_MS = 7 * DAY_MS


def move_starts(
    location: TableLocation, starts: Mapping[int, int], *, clock: Clock
) -> dict[int, int]:
    """Raise partitions' log starts (DeleteRecords, retention); the starts afterwards.

    A start never falls and never passes the partition's end. The same commit removes the files
    whose ranges are all below the starts, with `dataChange=false`, and lowers the row count. Raises
    CommitUnknownError when another commit came first.
    """
    return move_starts_of(LogTable(location), starts, clock=clock)


def move_starts_of(table: LogTable, starts: Mapping[int, int], *, clock: Clock) -> dict[int, int]:
    """`move_starts` of an open table, at its newest version."""
    location, snapshot = table.location, table.snapshot
    moved = {}
    for partition, start in starts.items():
        end = snapshot.ends.get(partition)
        if end is not None and start > snapshot.starts.get(partition, 0):
            moved[partition] = min(start, end)
    if not moved:
        return dict(snapshot.starts)
    after = {**snapshot.starts, **moved}
    removes = [f for f in snapshot.files if _is_below(location, f, after)]
    change = Change("retain", clock.now_ms(), removes=removes, starts=moved, data_change=False)
    table.commit(change)
    return dict(table.refresh().starts)


def plan_compaction(
    snapshot: Snapshot, *, files_min: int = COMPACT_FILES_MIN, bytes_target: int = L1_BYTES_TARGET
) -> tuple[LiveFile, ...]:
    """The L0 files to rewrite as one L1 file, oldest first; empty if none are due. Pure."""
    level0 = sorted(
        (f for f in snapshot.files if f.path.startswith(L0_PREFIX)), key=lambda f: f.modified_ms
    )
    chosen = first_within(level0, bytes_target)
    is_due = len(chosen) >= files_min or (len(chosen) > 1 and len(chosen) < len(level0))
    return chosen if is_due else ()


def compact(
    location: TableLocation,
    *,
    clock: Clock,
    entropy: Entropy,
    files_min: int = COMPACT_FILES_MIN,
    bytes_target: int = L1_BYTES_TARGET,
) -> int:
    """Rewrite L0 files as one sorted L1 file; the number of files replaced, 0 if not due.

    One commit with `dataChange=false` has the Add and the Removes. It is made against the snapshot
    that was read, so that every input file is still live. The row count must be equal before and
    after. Raises CommitUnknownError when another commit came first.
    """
    table = LogTable(location)
    chosen = plan_compaction(table.snapshot, files_min=files_min, bytes_target=bytes_target)
    if not chosen:
        return 0
    facts = rewrite(location, chosen, clock=clock, entropy=entropy)
    replace_files(table, chosen, facts, clock=clock)
    return len(chosen)


def rewrite(
    location: TableLocation, chosen: Sequence[LiveFile], *, clock: Clock, entropy: Entropy
) -> FileFacts:
    """Write the rows of these files as one sorted L1 file, and check it. Raises TableStateError
    when the rows are not those of the files' statistics."""
    rows = _sorted_rows(location, chosen)
    facts = write_file(rows, location, level=1, attempt=entropy.uuid(), now_ms=clock.now_ms())
    expected = sum(f.rows or 0 for f in chosen)
    if facts is None or facts.rows != expected:
        found = 0 if facts is None else facts.rows
        raise TableStateError(
            f"compacting {len(chosen)} files of {location.uri}: they hold {found} rows, but "
            f"{expected} by their statistics; nothing was changed"
        )
    check_file(location, facts)
    return facts


def replace_files(
    table: LogTable, chosen: Sequence[LiveFile], facts: FileFacts, *, clock: Clock
) -> None:
    """Commit a rewritten file in the place of the chosen ones, which must all be live in the open
    table's version. Raises UsageError if they are not, CommitUnknownError."""
    live = {f.path for f in table.snapshot.files}
    gone = [f.path for f in chosen if f.path not in live]
    if gone:
        raise UsageError(
            f"{gone[0]} of {table.location.uri} was removed while it was rewritten; nothing was "
            "changed"
        )
    table.commit(Change("compact", clock.now_ms(), adds=[facts], removes=chosen, data_change=False))


def repair(location: TableLocation, *, clock: Clock) -> dict[int, int]:
    """Rebuild the fence (ends, starts, row count) from the live rows; the ends.

    For a table whose fence was lost or whose rows a foreign commit changed. If the row count still
    holds, an `end` above the last row is kept, as trailing control records have no rows. If rows
    are missing, `end` becomes the last row's offset + 1: tiering fetches the missing records again,
    or fails if they no longer exist. Raises TableStateError if an offset occurs twice, as nothing
    shows which copy is right.
    """
    table = LogTable(location, checked=False)
    snapshot = table.snapshot
    ends, starts = dict(snapshot.ends), dict(snapshot.starts)
    without = [f.path for f in snapshot.files if f.rows is None]
    if without:
        raise TableStateError(
            f"{location.uri}: file {without[0]} has no row count, so a foreign writer added it: "
            "restore a version before that"
        )
    spans = _spans(location, snapshot)
    for partition, (first, last, rows, distinct) in spans.items():
        if rows != distinct:
            raise TableStateError(
                f"{location.uri}: partition {partition} holds {rows - distinct} offsets more than "
                "once: restore a version before the foreign commit, or delete the copies"
            )
        is_whole = table.version_of(rows_txn(location.topic_id)) == snapshot.rows
        ends[partition] = max(last + 1, ends.get(partition, 0) if is_whole else 0)
        starts.setdefault(partition, first)
    # The commit computes the row count from the live files, not from the fence.
    change = Change("repair", clock.now_ms(), ends=ends, starts=starts, data_change=False)
    table.commit(change)
    return dict(LogTable(location).snapshot.ends)


def vacuum(
    location: TableLocation,
    *,
    age_ms: int = VACUUM_AGE_DEFAULT_MS,
    pinned_versions: Sequence[int] = (),
) -> list[str]:
    """Delete files that neither a version within `age_ms` nor a pinned version needs; their names.

    Deletes files without any commit too, which killed jobs leave. The age is a day at least, as a
    job or reader may still use younger files. Folders whose names begin with `_` are kept.
    """
    if age_ms < VACUUM_AGE_MIN_MS:
        raise UsageError(f"vacuum of {location.uri}: an age of {age_ms} ms is less than a day")
    return LogTable(location).vacuum(age_ms // HOUR_MS, pinned_versions)


def _groups(location: TableLocation, path: str) -> list[RowGroup]:
    try:
        with filesystem(location).open_input_file(path) as source:
            return list(index_groups(path, pq.read_metadata(source)))
    except (OSError, pa.ArrowException) as error:
        raise TableAccessError(f"{location.uri}/{path} cannot be read: {error}") from error


def _is_below(location: TableLocation, live: LiveFile, starts: Mapping[int, int]) -> bool:
    """True when every range of the file is below its partition's start."""
    if live.min_offset is not None and live.min_offset >= max(starts.values(), default=0):
        return False
    return all(
        g.min_partition == g.max_partition and g.max_offset < starts.get(g.min_partition, 0)
        for g in _groups(location, live.path)
    )


def _sorted_rows(location: TableLocation, chosen: Sequence[LiveFile]) -> Iterator[pa.RecordBatch]:
    """The rows of L0 files by (partition, offset), with one row group in memory at a time.

    L0 files have sorted row groups of one partition each, whose ranges do not overlap.
    """
    groups = [group for live in chosen for group in _groups(location, live.path)]
    files = filesystem(location)
    for group in sorted(groups, key=lambda g: (g.min_partition, g.min_offset)):
        with pq.ParquetFile(files.open_input_file(group.path)) as source:
            table = source.read_row_group(group.index, columns=list(LOG_TABLE_COLUMNS))
        yield from table.cast(LOG_TABLE_SCHEMA).to_batches()


def _spans(location: TableLocation, snapshot: Snapshot) -> dict[int, tuple[int, int, int, int]]:
    """Per partition: first and last offset, number of rows, number of distinct offsets."""
    files = filesystem(location)
    found: dict[int, list[pa.ChunkedArray]] = {}
    for live in snapshot.files:
        with files.open_input_file(live.path) as source:
            table = pq.read_table(source, columns=["partition", "offset"])
        for partition in pc.unique(table.column("partition")).to_pylist():
            mine = table.filter(pc.equal(table.column("partition"), partition))
            found.setdefault(partition, []).append(mine.column("offset"))
    spans = {}
    for partition, parts in found.items():
        offsets = pa.chunked_array([chunk for part in parts for chunk in part.chunks])
        bounds = pc.min_max(offsets)
        distinct = pc.count_distinct(offsets).as_py()
        spans[partition] = (bounds["min"].as_py(), bounds["max"].as_py(), len(offsets), distinct)
    return spans
