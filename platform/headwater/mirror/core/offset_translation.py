"""Translates a source partition's offsets to the target's (MirrorMaker 2's OffsetSyncStore). Pure.

A run is as many records as follow each other in both logs. A new one begins where the source has a
marker, an aborted transaction or a compacted record, and where the target has a marker: at least
once a transaction. The runs are complete, so a translation is exact; MirrorMaker 2 keeps 64 pairs.

Stored by chunks of `CHUNK_RUNS`, so that a transaction rewrites little and compaction keeps one
record per chunk.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple

CHUNK_RUNS = 32


class Run(NamedTuple):
    """`length` records from offset `source` on are at offset `target` on."""

    source: int
    target: int
    length: int

    @property
    def source_end(self) -> int:
        """The source offset after the run."""
        return self.source + self.length

    @property
    def target_end(self) -> int:
        """The target offset after the run."""
        return self.target + self.length


class OffsetMap:
    """The runs of one partition, in the order of both offsets: 24 bytes each."""

    __slots__ = ("_first_chunk", "_lengths", "_sources", "_targets")

    def __init__(self) -> None:
        self._sources = array("q")
        self._targets = array("q")
        self._lengths = array("q")
        self._first_chunk = 0

    def __iter__(self) -> Iterator[Run]:
        return map(Run, self._sources, self._targets, self._lengths)

    def __len__(self) -> int:
        return len(self._lengths)

    def _run(self, at: int) -> Run:
        return Run(self._sources[at], self._targets[at], self._lengths[at])

    @property
    def first(self) -> Run | None:
        """The first run, None without any."""
        return self._run(0) if self._lengths else None

    @property
    def last(self) -> Run | None:
        """The last run, None without any."""
        return self._run(-1) if self._lengths else None

    def _append(self, run: Run) -> None:
        self._sources.append(run.source)
        self._targets.append(run.target)
        self._lengths.append(run.length)

    def add(self, runs: Iterable[Run]) -> set[int]:
        """Append runs; the chunks that changed. Raises ValueError for one that is not after the
        last run in both logs."""
        changed: set[int] = set()
        for run in runs:
            last = self.last
            if last is not None and (run.source < last.source_end or run.target < last.target_end):
                raise ValueError(f"{run} is not after {last}")
            if last is not None and run[:2] == (last.source_end, last.target_end):
                self._lengths[-1] += run.length
            else:
                self._append(run)
            changed.add(self._first_chunk + (len(self) - 1) // CHUNK_RUNS)
        return changed

    def to_target(self, offset: int) -> int | None:
        """Where to go on in the target for one who reads `offset` next in the source.

        Between runs it is the next record. After the last run it is the end of that run: what
        follows is not mirrored yet. None without runs.
        """
        found, last = self.next_from_source(offset), self.last
        if found is not None:
            return found[1]
        return None if last is None else last.target_end

    def next_from_source(self, offset: int) -> tuple[int, int] | None:
        """(source offset, target offset) of the first record at or after a source offset."""
        return self._next(offset, self._sources, self._targets)

    def next_from_target(self, offset: int) -> tuple[int, int] | None:
        """(target offset, source offset) of the first record at or after a target offset."""
        return self._next(offset, self._targets, self._sources)

    def _next(self, offset: int, own: array[int], other: array[int]) -> tuple[int, int] | None:
        at = bisect_right(own, offset) - 1
        if at >= 0 and offset - own[at] < self._lengths[at]:
            return offset, other[at] + offset - own[at]
        return (own[at + 1], other[at + 1]) if at + 1 < len(own) else None

    def after_target(self, offset: int) -> int:
        """The first target offset from `offset` on that no run has: what another producer wrote.

        Offsets before the first run count as mirrored: its records were, and the runs are pruned.
        """
        at = bisect_right(self._targets, offset) - 1
        if at < 0:
            return self.after_target(self._targets[0]) if self._targets else offset
        while at < len(self) and self._targets[at] <= offset < self._run(at).target_end:
            offset = self._run(at).target_end
            at += 1
        return offset

    def chunk(self, index: int) -> list[Run]:
        """The runs of one chunk."""
        at = (index - self._first_chunk) * CHUNK_RUNS
        return [self._run(n) for n in range(max(at, 0), min(at + CHUNK_RUNS, len(self)))]

    def prune(self, source_offset: int) -> list[int]:
        """Forget the chunks that end at or before `source_offset`; which ones. The last stays."""
        dropped = 0
        while True:
            end = (dropped + 1) * CHUNK_RUNS
            if end >= len(self) or self._run(end - 1).source_end > source_offset:
                break
            dropped += 1
        first = self._first_chunk
        if dropped:
            gone = dropped * CHUNK_RUNS
            del self._sources[:gone], self._targets[:gone], self._lengths[:gone]
            self._first_chunk += dropped
        return list(range(first, first + dropped))

    @classmethod
    def from_chunks(cls, chunks: dict[int, list[Run]]) -> OffsetMap:
        """The map of stored chunks. Raises ValueError when one between them is missing."""
        made = cls()
        if not chunks:
            return made
        first, last = min(chunks), max(chunks)
        if len(chunks) != last - first + 1:
            raise ValueError(f"of the chunks {first} to {last} some are missing")
        made._first_chunk = first
        for index in range(first, last + 1):
            for run in chunks[index]:
                made._append(run)
        return made

    def cut(self, source_offset: int) -> tuple[set[int], set[int]]:
        """Forget what is from `source_offset` on, as the source lost it: (chunks that changed,
        chunks that are gone)."""
        before = self._first_chunk + -(-len(self) // CHUNK_RUNS)
        kept = bisect_left(self._sources, source_offset)
        del self._sources[kept:], self._targets[kept:], self._lengths[kept:]
        last = self.last
        if last is not None and last.source_end > source_offset:
            self._lengths[-1] = source_offset - last.source
        after = self._first_chunk + -(-len(self) // CHUNK_RUNS)
        changed = {after - 1} if len(self) else set()
        return changed, set(range(after, before))


def translated(
    offset: int,
    position: int,
    own: OffsetMap,
    reverse: OffsetMap | None = None,
    orphans_end: int | None = None,
) -> int | None:
    """Where a consumer at source `offset` goes on in the target; None: nothing is known.

    `position`: how far the source is mirrored. `reverse`: the map of the mirror in the other
    direction, which wrote some of the source's records; `orphans_end`: where the target's lost tail
    ends, which comes between those and what this mirror wrote.
    """
    offset = min(offset, position)
    if reverse is None and orphans_end is None:
        return own.to_target(offset)
    mine = own.next_from_source(offset)
    if reverse is None:  # the map of the time before cannot be read
        return mine[1] if mine is not None and mine[0] == offset else None
    found = [place for place in (mine, reverse.next_from_target(offset)) if place is not None]
    if found:
        return min(found)[1]
    ends = [orphans_end or 0]
    ends += [own.last.target_end] if own.last is not None else []
    ends += [reverse.last.source_end] if reverse.last is not None else []
    return max(ends)
