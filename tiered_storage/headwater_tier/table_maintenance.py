"""What keeps a log table healthy: the log start moves, files are compacted, the fence is repaired.

Every commit here is made on a checked snapshot with retries off, as tiering's are; one that is
refused changed nothing and is simply planned again by the caller's next round.
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
from headwater_tier.plan import TableLocation
from headwater_tier.reader import RowGroup, index_groups
from headwater_tier.table_names import rows_txn

COMPACT_FILES_MIN = 64
"""L0 files that make one L1 file."""
L1_BYTES_TARGET = 128 << 20
L0_PREFIX = "l0-"
HOUR_MS = 3600 * 1000
DAY_MS = 24 * HOUR_MS
VACUUM_AGE_MIN_MS = DAY_MS
VACUUM_AGE_DEFAULT_MS = 7 * DAY_MS


def move_starts(
    location: TableLocation, starts: Mapping[int, int], *, clock: Clock
) -> dict[int, int]:
    """Raise each partition's log start (DeleteRecords, retention); the starts afterwards.

    A start never falls and never passes the partition's end. Files whose ranges all lie below go,
    with `dataChange=false`, and the row count with them, in the same commit. Raises
    CommitUnknownError when another commit was faster.
    """
    table = LogTable(location)
    snapshot = table.snapshot
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
    """The L0 files to rewrite as one, oldest first; none while there is too little. Pure."""
    level0 = sorted(
        (f for f in snapshot.files if f.path.startswith(L0_PREFIX)), key=lambda f: f.modified_ms
    )
    chosen: list[LiveFile] = []
    size_bytes = 0
    for live in level0:
        if chosen and size_bytes + live.size_bytes > bytes_target:
            break
        chosen.append(live)
        size_bytes += live.size_bytes
    is_due = len(chosen) >= files_min or (len(chosen) > 1 and len(chosen) < len(level0))
    return tuple(chosen) if is_due else ()


def compact(
    location: TableLocation,
    *,
    clock: Clock,
    entropy: Entropy,
    files_min: int = COMPACT_FILES_MIN,
    bytes_target: int = L1_BYTES_TARGET,
) -> int:
    """Rewrite L0 files as one L1 file, sorted; the number of files replaced, 0 when none are due.

    The Add and the Removes are one commit with `dataChange=false` on the snapshot that was read, so
    each input is known to be live still. Rows keep their number or nothing is committed. Raises
    CommitUnknownError when another commit was faster.
    """
    table = LogTable(location)
    chosen = plan_compaction(table.snapshot, files_min=files_min, bytes_target=bytes_target)
    if not chosen:
        return 0
    rows = _sorted_rows(location, chosen)
    facts = write_file(rows, location, level=1, attempt=entropy.uuid(), now_ms=clock.now_ms())
    expected = sum(f.rows or 0 for f in chosen)
    if facts is None or facts.rows != expected:
        found = 0 if facts is None else facts.rows
        raise TableStateError(
            f"compacting {len(chosen)} files of {location.uri}: they hold {found} rows, "
            f"their statistics say {expected}; nothing was changed"
        )
    check_file(location, facts)
    table.commit(Change("compact", clock.now_ms(), adds=[facts], removes=chosen, data_change=False))
    return len(chosen)


def repair(location: TableLocation, *, clock: Clock) -> dict[int, int]:
    """Rebuild the fence from the data: ends, starts and the row count of what is live; the ends.

    For a table whose fence was lost or whose rows a foreign commit changed. Where the row count is
    still right an `end` above the data is kept (trailing control records have no rows); where rows
    went missing it comes down to the data, so that tiering fetches them again or fails loudly.
    Refuses data that holds an offset twice: which copy is right is not ours to guess.
    """
    table = LogTable(location, checked=False)
    snapshot = table.snapshot
    ends, starts = dict(snapshot.ends), dict(snapshot.starts)
    without = [f.path for f in snapshot.files if f.rows is None]
    if without:
        raise TableStateError(
            f"{location.uri}: file {without[0]} has no row count, so a foreign writer added it; "
            "restore a version before that"
        )
    spans = _spans(location, snapshot)
    for partition, (first, last, rows, distinct) in spans.items():
        if rows != distinct:
            raise TableStateError(
                f"{location.uri}: partition {partition} holds {rows - distinct} offsets more than "
                "once; restore a version before the foreign commit, or delete the copies, first"
            )
        is_whole = table.version_of(rows_txn(location.topic_id)) == snapshot.rows
        ends[partition] = max(last + 1, ends.get(partition, 0) if is_whole else 0)
        starts.setdefault(partition, first)
    # the row count is an absolute value, not a difference: the change is against what is live
    change = Change("repair", clock.now_ms(), ends=ends, starts=starts, data_change=False)
    table.commit(change)
    return dict(LogTable(location).snapshot.ends)


def vacuum(
    location: TableLocation,
    *,
    age_ms: int = VACUUM_AGE_DEFAULT_MS,
    pinned_versions: Sequence[int] = (),
) -> list[str]:
    """Delete files that no version within the age, nor a pinned one, needs; their names.

    Full: orphans of killed tierers too. Never younger than a day: a tierer or a reader may be about
    to use them. Sidecar folders (names beginning with `_`) are left alone.
    """
    if age_ms < VACUUM_AGE_MIN_MS:
        raise UsageError(f"vacuum of {location.uri}: {age_ms} ms is less than a day")
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
    """The rows of these files by (partition, offset), one row group in memory at a time.

    Ours: each row group is sorted and of one partition, and ranges do not overlap.
    """
    groups = [group for live in chosen for group in _groups(location, live.path)]
    files = filesystem(location)
    for group in sorted(groups, key=lambda g: (g.min_partition, g.min_offset)):
        with pq.ParquetFile(files.open_input_file(group.path)) as source:
            table = source.read_row_group(group.index, columns=list(LOG_TABLE_COLUMNS))
        yield from table.cast(LOG_TABLE_SCHEMA).to_batches()


def _spans(location: TableLocation, snapshot: Snapshot) -> dict[int, tuple[int, int, int, int]]:
    """Per partition of the live rows: first and last offset, rows, distinct offsets."""
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
