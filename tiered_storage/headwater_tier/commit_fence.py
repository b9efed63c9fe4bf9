"""The fence of a table: no offset is committed twice, whoever crashed or restarted. Pure.

The fence is one application transaction per partition whose version *is* the next offset to tier,
`end`. A commit may be made only against a snapshot where each partition's `end` equals the plan's
`expected_end`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

from headwater_tier.offset_ranges import TierRange


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
