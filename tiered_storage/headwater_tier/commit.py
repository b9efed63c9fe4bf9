"""Commits the files of planned ranges to the log table, and resolves unknown outcomes."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.clock import Clock
from headwater.errors import UsageError
from headwater_tier.commit_fence import (
    CommitResult,
    FileFacts,
    Outcome,
    Verdict,
    facts_problem,
    judge,
    moved_starts,
)
from headwater_tier.data_files import check_file
from headwater_tier.delta import Change, CommitUnknownError, LogTable, TableAccessError
from headwater_tier.offset_ranges import TierRange
from headwater_tier.schema import FILE_AGE_MAX_MS
from headwater_tier.table_names import TableLocation

ATTEMPTS_MAX = 5


def commit_facts(
    location: TableLocation,
    ranges: Sequence[TierRange],
    files: Sequence[FileFacts],
    *,
    clock: Clock,
    attempts_max: int = ATTEMPTS_MAX,
) -> CommitResult:
    """Commit the tasks' files and the ranges' ends in one Delta commit. Runs on the driver.

    As `commit_to`, with a table that is opened for this commit.
    """
    _check(location, ranges, files, clock)
    return _commit(LogTable(location), ranges, files, clock, attempts_max)


def commit_to(
    table: LogTable,
    ranges: Sequence[TierRange],
    files: Sequence[FileFacts],
    *,
    clock: Clock,
    attempts_max: int = ATTEMPTS_MAX,
) -> CommitResult:
    """Commit files and the ranges' ends in one Delta commit, over an open table.

    Checks every file first: size, schema, rows, ranges. `files` is empty for ranges without rows.
    An error of the commit leaves its outcome unknown, so the table is opened again: with `end` at
    the range's end the commit is DONE; at `expected_end` the same files are tried again; otherwise
    another job committed, and this attempt is DISCARDED. Its files are left to vacuum, as a late
    success may still refer to them. Raises TableStateError, TableAccessError.
    """
    _check(table.location, ranges, files, clock)
    if judge(ranges, table.snapshot.ends) is not Verdict.READY:
        table.refresh()  # the handle may be older than another commit
    return _commit(table, ranges, files, clock, attempts_max)


def _check(
    location: TableLocation, ranges: Sequence[TierRange], files: Sequence[FileFacts], clock: Clock
) -> None:
    if not ranges:
        raise UsageError("a commit needs at least one planned range")
    problem = facts_problem(ranges, files, clock.now_ms(), FILE_AGE_MAX_MS)
    if problem:
        raise UsageError(f"tiering into {location.uri}: {problem}")
    for facts in files:
        check_file(location, facts)


def _commit(
    table: LogTable,
    ranges: Sequence[TierRange],
    files: Sequence[FileFacts],
    clock: Clock,
    attempts_max: int,
) -> CommitResult:
    error: CommitUnknownError | None = None
    for _ in range(attempts_max):
        verdict = judge(ranges, table.snapshot.ends)
        if verdict is Verdict.DONE:
            return _result(table, Outcome.DONE)
        if verdict is Verdict.OVERTAKEN:
            return _overtaken(table, ranges, files)
        try:
            table.commit(_change(ranges, files, clock.now_ms()))
        except CommitUnknownError as unknown:
            error = unknown
            table.reopen()
            continue
        table.refresh()
        return _result(table, Outcome.DONE)
    raise TableAccessError(f"{attempts_max} commits failed, the last one: {error}")


def ensure_table(location: TableLocation, partitions: int) -> dict[int, int]:
    """Create the log table unless it exists; its `end` per tiered partition, checked."""
    return dict(LogTable.create(location, partitions).snapshot.ends)


def _change(ranges: Sequence[TierRange], files: Sequence[FileFacts], now_ms: int) -> Change:
    return Change(
        kind="tier",
        now_ms=now_ms,
        adds=files,
        ends={r.partition: r.end_offset for r in ranges},
        starts=moved_starts(ranges),
    )


def _result(table: LogTable, outcome: Outcome, detail: str = "") -> CommitResult:
    snapshot = table.snapshot
    return CommitResult(outcome, snapshot.version, dict(snapshot.ends), detail)


def _overtaken(
    table: LogTable, ranges: Sequence[TierRange], files: Sequence[FileFacts]
) -> CommitResult:
    """DONE if the attempt's files are live, as a later commit followed it; else DISCARDED."""
    live = {f.path for f in table.snapshot.files}
    if files and all(f.path in live for f in files):
        return _result(table, Outcome.DONE, "another commit followed this one")
    moved = [r for r in ranges if table.snapshot.ends.get(r.partition) != r.expected_end]
    detail = (
        f"partition {moved[0].partition} was planned from end {moved[0].expected_end}, "
        f"the table is at {table.snapshot.ends.get(moved[0].partition)}"
    )
    return _result(table, Outcome.DISCARDED, detail)
