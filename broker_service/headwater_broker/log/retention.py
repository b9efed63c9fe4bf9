"""Which old segments may go. Pure: sizes, times and offsets in, a number of segments out."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from headwater_broker.log.log_config import NO_LIMIT, LogConfig


class SegmentAge(NamedTuple):
    """What retention knows of one segment."""

    base_offset: int
    next_offset: int
    """Base of the following segment, or the log end."""
    size_bytes: int
    newest_ms: int
    """Largest record timestamp, or when it was last written where records carry none."""


class DeletionScope(Enum):
    """What a deletion means for the topic."""

    HISTORY = "log start moves: the records are gone"
    LOCAL_COPY = "local log start moves: the table still has the records"


def expired_prefix(
    segments: Sequence[SegmentAge],
    now_ms: int,
    retention_ms: int,
    retention_bytes: int,
    keep_from: int,
) -> int:
    """How many of the oldest segments may go.

    A segment goes when it is older than `retention_ms`, or when the log without it still has
    `retention_bytes` (so a log never shrinks below that). The walk stops at the first that
    stays, and never passes `keep_from`: an offset that must remain, such as the high watermark.
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
    """(how many of the oldest segments go, what that means).

    With tiering on, only the local limits count here and only below the tiered end: history
    itself is shortened in the table. Without it, compacted-only logs are never shortened by size
    or age: compaction replaces records instead (`log.cleaner`).
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
