"""Plans the offset ranges to tier, and decides whether they may be committed. Pure.

The fence is one application transaction per partition whose version *is* the next offset to tier,
`end`. A commit may be made only against a snapshot where each partition's `end` equals the plan's
`expected_end`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import pairwise
from uuid import UUID

NO_LIMIT = -1
TASK_OFFSETS_MIN = 50_000
"""Offsets per task at least: below this a task costs more time than it saves."""


@dataclass(frozen=True, slots=True)
class TableLocation:
    """A topic's log table and the options of its storage. Picklable; travels to tasks."""

    uri: str
    topic: str
    topic_id: UUID
    storage_options: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Limits:
    """A topic's retention limits; -1 is no limit."""

    retention_ms: int = NO_LIMIT
    retention_bytes: int = NO_LIMIT

    @property
    def unlimited(self) -> bool:
        """True when retention removes nothing."""
        return self.retention_ms == NO_LIMIT and self.retention_bytes == NO_LIMIT


@dataclass(frozen=True, slots=True)
class PartitionBounds:
    """The leader's log start offset and last stable offset."""

    log_start_offset: int
    last_stable_offset: int


@dataclass(frozen=True, slots=True)
class TierRange:
    """Offsets [start_offset, end_offset) of one partition, fixed at plan time, never recomputed.

    `expected_end` is the table's `end` at plan time, None for a partition that was not tiered yet.
    It is below `start_offset` only if the log start had passed it.
    """

    partition: int
    expected_end: int | None
    start_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class ColumnStats:
    """Min, max and null count of one column of one file; min and max are None if all is null."""

    minimum: int | None
    maximum: int | None
    nulls: int


@dataclass(frozen=True, slots=True)
class FileFacts:
    """A task's report of the file it wrote, which the driver checks before the commit.

    `path` is relative to the table. `ranges` = (partition, first_offset, last_offset, rows).
    `stats` by column: partition, offset, timestamp (microseconds), leader_epoch.
    """

    path: str
    size_bytes: int
    rows: int
    written_ms: int
    ranges: tuple[tuple[int, int, int, int], ...]
    stats: tuple[tuple[str, ColumnStats], ...]


class Outcome(Enum):
    """The known outcome of a commit."""

    DONE = "done"
    """The table holds exactly these ranges, by this attempt or an earlier one."""
    DISCARDED = "discarded"
    """Another tier job committed first: the table has nothing of this attempt; plan again."""


@dataclass(frozen=True, slots=True)
class CommitResult:
    """`version` and `ends` are of the snapshot that decided the outcome."""

    outcome: Outcome
    version: int
    ends: Mapping[int, int]
    detail: str = ""


class Verdict(Enum):
    """Whether planned ranges may be committed against a snapshot."""

    READY = "ready"
    """Every partition's end is the expected one: commit."""
    DONE = "done"
    """Every partition's end is the range's end: an earlier attempt succeeded."""
    OVERTAKEN = "overtaken"
    """Neither: another commit moved an end."""


def plan_ranges(
    ends: Mapping[int, int],
    bounds: Mapping[int, PartitionBounds],
    *,
    offsets_max: int | None = None,
) -> tuple[TierRange, ...]:
    """The ranges to tier next, by partition; none for a partition without new offsets.

    `ends` are the table's; `offsets_max` limits the offsets per partition of one commit. A last
    stable offset below the table's end (a new leader that does not know its high watermark yet)
    gives no range.
    """
    ranges = []
    for partition, bound in sorted(bounds.items()):
        expected = ends.get(partition)
        start = bound.log_start_offset if expected is None else expected
        start = max(start, bound.log_start_offset)
        end = bound.last_stable_offset
        if offsets_max is not None:
            end = min(end, start + offsets_max)
        if end > start:
            ranges.append(TierRange(partition, expected, start, end))
    return tuple(ranges)


def judge(ranges: Sequence[TierRange], ends: Mapping[int, int]) -> Verdict:
    """The verdict on ranges, from the ends of a checked snapshot."""
    if all(ends.get(r.partition) == r.end_offset for r in ranges):
        return Verdict.DONE
    if all(ends.get(r.partition) == r.expected_end for r in ranges):
        return Verdict.READY
    return Verdict.OVERTAKEN


def moved_starts(ranges: Sequence[TierRange]) -> dict[int, int]:
    """The `start`s that the commit must set: of new partitions, and where the log start moved."""
    return {r.partition: r.start_offset for r in ranges if r.start_offset != r.expected_end}


def facts_problem(
    ranges: Sequence[TierRange], files: Sequence[FileFacts], now_ms: int, age_max_ms: int
) -> str | None:
    """Why these files must not be committed for these ranges; None if they may."""
    planned = {r.partition: r for r in ranges}
    if len(planned) != len(ranges):
        return "a partition is planned twice"
    covered: dict[int, list[tuple[int, int]]] = {}
    for facts in files:
        if now_ms - facts.written_ms > age_max_ms:
            return f"{facts.path} is older than half the vacuum retention; tier again"
        if sum(rows for *_, rows in facts.ranges) != facts.rows:
            return f"{facts.path} reports {facts.rows} rows, but its ranges have another sum"
        for partition, first, last, _ in facts.ranges:
            wanted = planned.get(partition)
            if wanted is None or first < wanted.start_offset or last >= wanted.end_offset:
                return f"{facts.path} holds partition {partition} [{first}, {last}], not planned"
            covered.setdefault(partition, []).append((first, last))
    for partition, spans in covered.items():
        spans.sort()
        for before, after in pairwise(spans):
            if after[0] <= before[1]:
                return f"two files hold partition {partition} offset {after[0]}"
    return None


def task_ranges(
    ranges: Sequence[TierRange], parallelism: int, offsets_min: int = TASK_OFFSETS_MIN
) -> list[tuple[TierRange, ...]]:
    """The ranges of each task: at least `offsets_min` offsets per task, in equal shares.

    A piece of a partition's range keeps the range's `expected_end`; the commit is for the ranges.
    """
    total = sum(r.end_offset - r.start_offset for r in ranges)
    parts = max(1, min(parallelism, total // offsets_min))
    share = math.ceil(total / parts)
    pieces: list[list[TierRange]] = [[]]
    left = share
    for planned in ranges:
        at = planned.start_offset
        while at < planned.end_offset:
            if left <= 0:
                pieces.append([])
                left = share
            end = min(planned.end_offset, at + left)
            pieces[-1].append(replace(planned, start_offset=at, end_offset=end))
            left -= end - at
            at = end
    return [tuple(part) for part in pieces if part]
