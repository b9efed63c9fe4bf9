"""What to tier, and what a commit means: values and pure functions, no I/O.

The fence: one application transaction per partition whose version *is* the next offset. A commit
may happen only on a snapshot where `end` equals the plan's `expected_end` for each partition.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from uuid import UUID


@dataclass(frozen=True, slots=True)
class TableLocation:
    """Where a topic's log table is and how to get at it. Picklable; goes to tasks as it is."""

    uri: str
    topic: str
    topic_id: UUID
    storage_options: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class PartitionBounds:
    """What the leader says: its log start and last stable offset (the read-committed end)."""

    log_start_offset: int
    last_stable_offset: int


@dataclass(frozen=True, slots=True)
class TierRange:
    """Offsets [start_offset, end_offset) of one partition, fixed at plan time, never recomputed.

    `expected_end` is the fence: the table's `end` when planned, None when it had none. It is below
    `start_offset` only where the log start had already passed it.
    """

    partition: int
    expected_end: int | None
    start_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class ColumnStats:
    """Min, max and null count of one column of one file; min and max None when all null."""

    minimum: int | None
    maximum: int | None
    nulls: int


@dataclass(frozen=True, slots=True)
class FileFacts:
    """What a task reports of a file it wrote; the driver checks it before it commits it.

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
    """How a commit ended, after every doubt was resolved."""

    DONE = "done"
    """The table now holds exactly these ranges, by this attempt or an earlier, unheard one."""
    DISCARDED = "discarded"
    """Another tierer was faster: nothing of ours is in the table; plan again."""


@dataclass(frozen=True, slots=True)
class CommitResult:
    """`version` and `ends` are of the snapshot that settled it."""

    outcome: Outcome
    version: int
    ends: Mapping[int, int]
    detail: str = ""


class Verdict(Enum):
    """What a checked snapshot's ends say about planned ranges."""

    READY = "ready"
    """Every fence is where it was at plan time: commit."""
    DONE = "done"
    """Every end is the planned one: an earlier attempt got through."""
    OVERTAKEN = "overtaken"
    """Neither: someone else moved a fence."""


def plan_ranges(
    ends: Mapping[int, int],
    bounds: Mapping[int, PartitionBounds],
    *,
    offsets_max: int | None = None,
) -> tuple[TierRange, ...]:
    """The ranges to tier next, by partition; none for a partition that has nothing new.

    `ends` are the table's; `offsets_max` caps the offsets per partition of one commit. A last
    stable offset behind the table's end (a new leader that has not heard its high watermark yet)
    is nothing new.
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


def split_ranges(ranges: Sequence[TierRange], parts: int) -> tuple[tuple[TierRange, ...], ...]:
    """The same ranges dealt to at most `parts` tasks, about equally by offsets, uncut.

    Largest first to the least loaded; each task's ranges stay sorted by partition.
    """
    tasks: list[list[TierRange]] = [[] for _ in range(max(1, min(parts, len(ranges))))]
    loads = [0] * len(tasks)
    for planned in sorted(ranges, key=lambda r: (r.start_offset - r.end_offset, r.partition)):
        lightest = loads.index(min(loads))
        tasks[lightest].append(planned)
        loads[lightest] += planned.end_offset - planned.start_offset
    return tuple(tuple(sorted(task, key=lambda r: r.partition)) for task in tasks if task)


def judge(ranges: Sequence[TierRange], ends: Mapping[int, int]) -> Verdict:
    """Where these ranges stand on a checked snapshot."""
    if all(ends.get(r.partition) == r.end_offset for r in ranges):
        return Verdict.DONE
    if all(ends.get(r.partition) == r.expected_end for r in ranges):
        return Verdict.READY
    return Verdict.OVERTAKEN


def moved_starts(ranges: Sequence[TierRange]) -> dict[int, int]:
    """The `start` that a commit of these must set: first ones, and those the log start passed."""
    return {r.partition: r.start_offset for r in ranges if r.start_offset != r.expected_end}


def facts_problem(
    ranges: Sequence[TierRange], files: Sequence[FileFacts], now_ms: int, age_max_ms: int
) -> str | None:
    """Why these files can't be committed for these ranges, or None."""
    planned = {r.partition: r for r in ranges}
    if len(planned) != len(ranges):
        return "a partition is planned twice"
    covered: dict[int, list[tuple[int, int]]] = {}
    for facts in files:
        if now_ms - facts.written_ms > age_max_ms:
            return f"{facts.path} is older than half the vacuum retention; tier again"
        if sum(rows for *_, rows in facts.ranges) != facts.rows:
            return f"{facts.path} reports {facts.rows} rows, but its ranges do not add up to them"
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
