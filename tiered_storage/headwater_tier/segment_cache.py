"""Index of the rebuilt segments on disk, which evicts the least recently used ones. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from dataclasses import dataclass, field

PIN_S = 5.0
"""A segment that was used within this time is not evicted: its reader may be about to open it."""


@dataclass(slots=True)
class Segment:
    """A file of rebuilt batches with offsets [bases[0], end_offset)."""

    table: str
    partition: int
    path: str
    end_offset: int
    bases: list[int]
    """Base offset of each batch."""
    positions: list[int]
    """Byte position of each batch, then the size of the file."""
    sources: tuple[str, ...]
    """The table's files that the segment was rebuilt from."""
    used_at: float = 0.0
    checked_at: float = 0.0

    @property
    def start_offset(self) -> int:
        """The first offset of the segment."""
        return self.bases[0]

    @property
    def size_bytes(self) -> int:
        """The size of the file."""
        return self.positions[-1]

    def cut(self, offset: int, max_bytes: int) -> tuple[int, int, int]:
        """(position, size, next offset) of the batches from `offset` on, one batch at least."""
        first = bisect_right(self.bases, offset) - 1
        position = self.positions[first]
        last = bisect_right(self.positions, position + max_bytes) - 1
        last = min(max(last, first + 1), len(self.bases))
        following = self.bases[last] if last < len(self.bases) else self.end_offset
        return position, self.positions[last] - position, following


@dataclass(slots=True)
class SegmentCache:
    """Segments by table, partition and offset, up to `bytes_max` bytes."""

    bytes_max: int
    size_bytes: int = 0
    _by_place: dict[tuple[str, int], list[Segment]] = field(default_factory=dict)
    _by_use: OrderedDict[str, Segment] = field(default_factory=OrderedDict)

    def find(self, table: str, partition: int, offset: int, now: float) -> Segment | None:
        """The segment that covers `offset`, marked as used now; None without one."""
        segments = self._by_place.get((table, partition), [])
        at = bisect_right(segments, offset, key=lambda s: s.start_offset) - 1
        if at < 0 or offset >= segments[at].end_offset:
            return None
        segment = segments[at]
        segment.used_at = now
        self._by_use.move_to_end(segment.path)
        return segment

    def add(self, segment: Segment, now: float) -> list[str]:
        """Add a segment; the paths to delete: of segments that it replaces, and evicted ones."""
        segment.used_at = segment.checked_at = now
        place = (segment.table, segment.partition)
        gone = [
            other
            for other in self._by_place.get(place, [])
            if other.start_offset < segment.end_offset and segment.start_offset < other.end_offset
        ]
        paths = [self.drop(other) for other in gone]
        segments = self._by_place.setdefault(place, [])
        segments.insert(
            bisect_right(segments, segment.start_offset, key=lambda s: s.start_offset), segment
        )
        self._by_use[segment.path] = segment
        self.size_bytes += segment.size_bytes
        for other in list(self._by_use.values()):
            if self.size_bytes <= self.bytes_max or now - other.used_at < PIN_S:
                break
            paths.append(self.drop(other))
        return paths

    def holds(self, segment: Segment) -> bool:
        """True until the segment is dropped."""
        return self._by_use.get(segment.path) is segment

    def drop(self, segment: Segment) -> str:
        """Remove a segment; its path, to delete."""
        segments = self._by_place[segment.table, segment.partition]
        segments.remove(segment)
        del self._by_use[segment.path]
        self.size_bytes -= segment.size_bytes
        return segment.path
