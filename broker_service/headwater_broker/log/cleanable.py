"""Which part of which log is to be compacted, and how segments are put together. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from headwater_broker.log.index import RELATIVE_OFFSET_MAX
from headwater_broker.log.log_config import LogConfig

GROUP_SEGMENTS_MAX = 64
"""So many segments at most become one: their files are renamed in one turn of the loop."""


class SegmentSpan(NamedTuple):
    """What is asked of one segment."""

    base_offset: int
    next_offset: int
    size_bytes: int
    first_timestamp: int
    newest_ms: int
    """Largest timestamp, or when it was last written where records carry none."""


class Cleanable(NamedTuple):
    """The part of a log that compaction may work on now."""

    first_dirty: int
    end: int
    """Segments below this may be rewritten: the rest is active, unstable or too young."""
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool
    """A dirty record is older than max.compaction.lag.ms."""

    @property
    def dirty_ratio(self) -> float:
        """The dirty share of what could be cleaned."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    def is_due(self, min_dirty_ratio: float) -> bool:
        """Is it worth a pass now?"""
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
    """Judge a log by its segments, the last of which is the active one.

    Only whole segments below `stable_offset` (the last stable offset) count, and none from the
    first dirty one on that has a record younger than min.compaction.lag.ms.
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


def groups(
    segments: Iterable[tuple[int, int, int]],
    segment_bytes: int,
    index_entries_max: int,
    index_interval_bytes: int,
) -> list[list[int]]:
    """(base, next offset, size) of old segments -> which of them become one new segment.

    In order; each new one stays within the size, the index and the offset range of a segment.
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
