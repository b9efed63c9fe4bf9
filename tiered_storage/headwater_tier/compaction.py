"""Compaction of a log table: which small files are due to become one, and the rewrite (OPTIMIZE).

L0 files are those of commits; compaction writes an L1 file of at most L1_BYTES_TARGET. A trickling
topic would leave thousands of tiny files: once 64 L0 files are there they are folded, together with
the undersized L1 files before them that are not larger than twice what follows; so the sizes of
undersized files fall by half from each to the next, and each row is rewritten a few times only.
Once a day, and when a topic is quiet, all undersized files are folded. Files are folded with their
neighbours only: a large file, or one of others, that has offsets between theirs parts them.

Every commit is made against a checked snapshot with retries off, as in tiering. A commit that loses
against another one changes nothing, and the caller's next round plans again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from headwater.clock import Clock
from headwater.columnar.schema import LOG_TABLE_COLUMNS, LOG_TABLE_SCHEMA
from headwater.entropy import Entropy
from headwater.errors import UsageError
from headwater_tier.commit_fence import FileFacts
from headwater_tier.data_files import check_file, write_file
from headwater_tier.delta import (
    Change,
    LiveFile,
    LogTable,
    Snapshot,
    TableAccessError,
    TableStateError,
    filesystem,
    may_use_threads,
)
from headwater_tier.live_files import first_within
from headwater_tier.reader import RowGroup, index_groups
from headwater_tier.table_names import TableLocation, is_own_file

COMPACT_FILES_MIN = 64
"""L0 files that are compacted into one L1 file."""
L1_BYTES_TARGET = 128 << 20
L0_PREFIX = "l0-"
HOUR_MS = 3600 * 1000
DAY_MS = 24 * HOUR_MS
QUIET_MS = HOUR_MS


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


def plan_fold(
    files: Sequence[LiveFile],
    now_ms: int,
    *,
    files_min: int = COMPACT_FILES_MIN,
    bytes_target: int = L1_BYTES_TARGET,
) -> tuple[LiveFile, ...]:
    """The files to rewrite as one, oldest first; empty if none are due. Files of others stay."""
    plans = (
        _plan_run(run, now_ms, files_min, bytes_target) for run in neighbours(files, bytes_target)
    )
    return next((chosen for chosen in plans if chosen), ())


def neighbours(files: Sequence[LiveFile], bytes_target: int) -> list[list[LiveFile]]:
    """The undersized files between two files that stay, and so on, oldest first. Pure.

    A file's statistics are of all its partitions. They say what comes after what where two files
    span the same partitions; elsewhere, the times of their commits say it.
    """
    small: list[LiveFile] = []
    times: list[int] = []
    ends: dict[tuple[int | None, int | None], list[tuple[int, int]]] = {}
    for live in files:
        if live.size_bytes < bytes_target // 2 and is_own_file(live.path):
            small.append(live)
            continue
        times.append(live.modified_ms)
        if live.max_offset is not None:
            same = ends.setdefault((live.min_partition, live.max_partition), [])
            same.append((live.max_offset, live.modified_ms))
    times.sort()
    bounds = {
        span: (sorted(end for end, _ in rows), sorted(ms for _, ms in rows))
        for span, rows in ends.items()
    }

    def passed(live: LiveFile) -> int:
        """How many of the files that stay are before this one."""
        same_ends, same_times = bounds.get((live.min_partition, live.max_partition), ([], []))
        by_time = bisect_right(times, live.modified_ms)
        if live.max_offset is None:
            return by_time
        others = by_time - bisect_right(same_times, live.modified_ms)
        return others + bisect_right(same_ends, live.max_offset)

    small.sort(key=lambda f: (f.modified_ms, f.path))
    runs: dict[int, list[LiveFile]] = {}
    for live in small:
        runs.setdefault(passed(live), []).append(live)
    return [runs[number] for number in sorted(runs)]


def _plan_run(
    small: Sequence[LiveFile], now_ms: int, files_min: int, bytes_target: int
) -> tuple[LiveFile, ...]:
    """The files of one run, oldest first, to rewrite as one; empty if none are due."""
    if len(small) < 2:
        return ()
    if _is_day_over(small, now_ms) or now_ms - small[-1].modified_ms >= QUIET_MS:
        return first_within(small, bytes_target)
    level0 = [f for f in small if f.path.startswith(L0_PREFIX)]
    batch = first_within(level0, bytes_target)
    if len(batch) < files_min and len(batch) == len(level0):
        return ()
    older = [f for f in small if not f.path.startswith(L0_PREFIX)]
    chosen, size = list(batch), sum(f.size_bytes for f in batch)
    for before in reversed(older):
        if before.size_bytes > 2 * size or size + before.size_bytes > bytes_target:
            break
        chosen.insert(0, before)
        size += before.size_bytes
    return tuple(chosen) if len(chosen) > 1 else ()


def _is_day_over(small: Sequence[LiveFile], now_ms: int) -> bool:
    """True when the oldest undersized file is of an earlier day (UTC)."""
    return small[0].modified_ms // DAY_MS < now_ms // DAY_MS


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


def row_groups_of(location: TableLocation, path: str) -> list[RowGroup]:
    """The row groups of one file. Raises TableAccessError."""
    try:
        with filesystem(location).open_input_file(path) as source:
            return list(index_groups(path, pq.read_metadata(source)))
    except (OSError, pa.ArrowException) as error:
        raise TableAccessError(f"{location.uri}/{path} cannot be read: {error}") from error


def _sorted_rows(location: TableLocation, chosen: Sequence[LiveFile]) -> Iterator[pa.RecordBatch]:
    """The rows of L0 files by (partition, offset), with one row group in memory at a time.

    L0 files have sorted row groups of one partition each, whose ranges do not overlap.
    """
    groups = [group for live in chosen for group in row_groups_of(location, live.path)]
    files = filesystem(location)
    for group in sorted(groups, key=lambda g: (g.min_partition, g.min_offset)):
        with pq.ParquetFile(files.open_input_file(group.path)) as source:
            table = source.read_row_group(
                group.index,
                columns=list(LOG_TABLE_COLUMNS),
                use_threads=may_use_threads(location),
            )
        yield from table.cast(LOG_TABLE_SCHEMA).to_batches()
