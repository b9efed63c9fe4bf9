"""Retention: the old segments to delete, with tiering below the tiered end alone. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from headwater_broker.log.log_config import NO_LIMIT, LogConfig


class SegmentAge(NamedTuple):
    """One segment as retention sees it."""

    base_offset: int
    next_offset: int
    """Base of the following segment, or the log end."""
    size_bytes: int
    newest_ms: int
    """Largest timestamp; of records without timestamps, the time of the last write."""


class DeletionScope(Enum):
    """The segments that a deletion removes."""

    HISTORY = "the log start moves: the records are deleted"
    LOCAL_COPY = "the local log start moves: the table has the records"


def expired_prefix(
    segments: Sequence[SegmentAge],
    now_ms: int,
    retention_ms: int,
    retention_bytes: int,
    keep_from: int,
) -> int:
    """How many of the oldest segments are deleted.

    A segment is deleted when it is older than `retention_ms`, or when the log without it still has
    `retention_bytes`, so that a log never shrinks below that. The first segment that stays ends the
    walk, as does one with records at or above `keep_from`, such as the high watermark.
    """
    total = sum(segment.size_bytes for segment in segments)
    excess = total - retention_bytes if retention_bytes != NO_LIMIT else -1
    count = 0
    for segment in segments:
        if segment.next_offset > keep_from or segment.next_offset == segment.base_offset:
            break
        is_old = retention_ms != NO_LIMIT and now_ms - segment.newest_ms > retention_ms
        is_excess = excess - segment.size_bytes >= 0
        if not is_old and not is_excess:
            break
        excess -= segment.size_bytes
        count += 1
    return count


def plan(
    segments: Sequence[SegmentAge],
    config: LogConfig,
    now_ms: int,
    high_watermark: int,
    tiered_end: int | None,
) -> tuple[int, DeletionScope]:
    """(how many of the oldest segments are deleted, what that removes).

    With tiering only the local limits count, below the tiered end: history itself is deleted in the
    table. Without tiering, logs that are only compacted are not deleted by size or age.
    """
    if config.remote_storage:
        if tiered_end is None:
            return 0, DeletionScope.LOCAL_COPY
        count = expired_prefix(
            segments,
            now_ms,
            config.effective_local_retention_ms,
            config.effective_local_retention_bytes,
            min(high_watermark, tiered_end),
        )
        return count, DeletionScope.LOCAL_COPY
    if not config.is_deleted:
        return 0, DeletionScope.HISTORY
    count = expired_prefix(
        segments, now_ms, config.retention_ms, config.retention_bytes, high_watermark
    )
    return count, DeletionScope.HISTORY
