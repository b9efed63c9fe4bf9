"""The offset ranges to tier next, and each task's share of them. Pure.

A range begins at its table's `end`, the next offset to tier (`commit_fence` has the fence).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

TASK_OFFSETS_MIN = 50_000
"""Offsets per task at least: below this a task costs more time than it saves."""


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
