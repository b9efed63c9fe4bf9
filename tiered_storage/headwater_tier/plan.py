"""What to tier, and what a commit means: values and pure functions, no I/O.

The fence: one application transaction per partition whose version *is* the next offset. A commit
may happen only on a snapshot where `end` equals the plan's `expected_end` for each partition.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
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


def plan_ranges(
    ends: Mapping[int, int],
    bounds: Mapping[int, PartitionBounds],
    *,
    offsets_max: int | None = None,
) -> tuple[TierRange, ...]:
    """The ranges to tier next, by partition; none for a partition that has nothing new.

    `ends` are the table's; `offsets_max` caps the offsets per partition of one commit.
    """
    raise NotImplementedError


def split_ranges(ranges: Sequence[TierRange], parts: int) -> tuple[tuple[TierRange, ...], ...]:
    """The same ranges dealt to at most `parts` tasks, about equally by offsets, uncut."""
    raise NotImplementedError
