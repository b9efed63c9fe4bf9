"""The part of a log that the cleaner may compact, and segments that become one. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from headwater_broker.log.index import RELATIVE_OFFSET_MAX
from headwater_broker.log.log_config import LogConfig

GROUP_SEGMENTS_MAX = 64
"""At most this many segments become one: their files are renamed in one turn of the loop."""


class SegmentSpan(NamedTuple):
    """One segment as the cleaner sees it."""

    base_offset: int
    next_offset: int
    size_bytes: int
    first_timestamp: int
    newest_ms: int
    """Largest timestamp; of records without timestamps, the time of the last write."""


class Cleanable(NamedTuple):
    """The part of a log that may be compacted now."""

    first_dirty: int
    end: int
    """Segments below it may be rewritten; the others are active, unstable or too young."""
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool
    """A dirty record is older than max.compaction.lag.ms."""

    @property
    def dirty_ratio(self) -> float:
        """Dirty bytes as a share of the bytes that may be compacted."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    def is_due(self, min_dirty_ratio: float) -> bool:
        """Whether the log should be compacted now."""
        if self.dirty_bytes == 0:
            return False
        return self.is_overdue or self.dirty_ratio > min_dirty_ratio


def cleanable(
    segments: Sequence[SegmentSpan],
    first_dirty: int,
    stable_offset: int,
    config: LogConfig,
    now_ms: int,
) -> Cleanable:
    """The range that may be compacted of a log with these segments, the last of which is active.

    Only segments that end at or below `stable_offset`, the last stable offset, count. The first
    dirty segment with a record younger than min.compaction.lag.ms, and all after it, do not.
    """
    end = segments[0].base_offset
    clean_bytes = dirty_bytes = 0
    oldest = now_ms
    for segment in segments[:-1]:
        if segment.next_offset > stable_offset:
            break
        is_dirty = segment.next_offset > first_dirty
        if is_dirty:
            if 0 < config.min_compaction_lag_ms > now_ms - segment.newest_ms:
                break
            if 0 <= segment.first_timestamp < oldest:
                oldest = segment.first_timestamp
            dirty_bytes += segment.size_bytes
        else:
            clean_bytes += segment.size_bytes
        end = segment.next_offset
    is_overdue = now_ms - oldest > config.max_compaction_lag_ms
    first = min(max(first_dirty, segments[0].base_offset), end)
    return Cleanable(first, end, clean_bytes, dirty_bytes, is_overdue)


def group_segments(
    segments: Iterable[tuple[int, int, int]],
    segment_bytes: int,
    index_entries_max: int,
    index_interval_bytes: int,
) -> list[list[int]]:
    """Group old segments, given as (base, next offset, size): each group becomes one new segment.

    Order is kept; a new segment stays within the size, index and offset limits of a segment.
    """
    found: list[list[int]] = []
    size_of_group = first = 0
    for base, following, size in segments:
        total = size_of_group + size
        if (
            not found
            or total > min(segment_bytes, RELATIVE_OFFSET_MAX)
            or total // (index_interval_bytes + 1) >= index_entries_max
            or following - 1 - first > RELATIVE_OFFSET_MAX
            or len(found[-1]) >= GROUP_SEGMENTS_MAX
        ):
            found.append([])
            total, first = size, base
        found[-1].append(base)
        size_of_group = total
    return found
