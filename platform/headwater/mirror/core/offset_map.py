"""Where a source partition's records are in the target: runs of offsets. Pure.

A run is as many records as follow each other in both logs. A new one begins where the source has a
marker, an aborted transaction or a compacted record, and where the target has a marker: at least
once a transaction. The runs are complete, so a translation is exact; MirrorMaker 2 keeps 64 pairs.

Stored by chunks of `CHUNK_RUNS`, so that a transaction rewrites little and compaction keeps one
record per chunk.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

CHUNK_RUNS = 64


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
    """The runs of one partition, in the order of both offsets."""

    __slots__ = ("_first_chunk", "_runs", "_sources", "_targets")

    def __init__(self) -> None:
        self._runs: list[Run] = []
        self._sources: list[int] = []
        self._targets: list[int] = []
        self._first_chunk = 0

    def __iter__(self) -> Iterator[Run]:
        return iter(self._runs)

    def __len__(self) -> int:
        return len(self._runs)

    @property
    def first(self) -> Run | None:
        """The first run, None without any."""
        return self._runs[0] if self._runs else None

    @property
    def last(self) -> Run | None:
        """The last run, None without any."""
        return self._runs[-1] if self._runs else None

    def add(self, runs: Iterable[Run]) -> set[int]:
        """Append runs; the chunks that changed. Raises ValueError for one that is not after the
        last run in both logs."""
        changed: set[int] = set()
        for run in runs:
            last = self.last
            if last is not None and (run.source < last.source_end or run.target < last.target_end):
                raise ValueError(f"{run} is not after {last}")
            if last is not None and run[:2] == (last.source_end, last.target_end):
                self._runs[-1] = last._replace(length=last.length + run.length)
            else:
                self._runs.append(run)
                self._sources.append(run.source)
                self._targets.append(run.target)
            changed.add(self._first_chunk + (len(self._runs) - 1) // CHUNK_RUNS)
        return changed

    def to_target(self, offset: int) -> int | None:
        """Where to go on in the target for one who reads `offset` next in the source.

        Between runs it is the next record. After the last run it is the end of that run: what
        follows is not mirrored yet. None without runs.
        """
        return self._translated(offset, self._sources, lambda run: (run[0], run[1]))

    def to_source(self, offset: int) -> int | None:
        """The same from the target to the source."""
        return self._translated(offset, self._targets, lambda run: (run[1], run[0]))

    def _translated(
        self, offset: int, starts: list[int], sides: Callable[[Run], tuple[int, int]]
    ) -> int | None:
        if not starts:
            return None
        at = bisect_right(starts, offset) - 1
        if at < 0:
            return sides(self._runs[0])[1]
        start, other = sides(self._runs[at])
        within = offset - start
        if within < self._runs[at].length:
            return other + within
        if at + 1 < len(self._runs):
            return sides(self._runs[at + 1])[1]
        return other + self._runs[at].length

    def after_target(self, offset: int) -> int:
        """The first target offset from `offset` on that no run has: what another producer wrote.

        Offsets before the first run count as mirrored: its records were, and the runs are pruned.
        """
        at = bisect_right(self._targets, offset) - 1
        if at < 0:
            return self.after_target(self._targets[0]) if self._targets else offset
        run = self._runs[at]
        while run.target_end > offset:
            offset = run.target_end
            at += 1
            if at == len(self._runs) or self._runs[at].target > offset:
                break
            run = self._runs[at]
        return offset

    def chunk(self, index: int) -> list[Run]:
        """The runs of one chunk."""
        at = (index - self._first_chunk) * CHUNK_RUNS
        return self._runs[max(at, 0) : at + CHUNK_RUNS] if at >= 0 else []

    def prune(self, source_offset: int) -> list[int]:
        """Forget the chunks that end at or before `source_offset`; which ones. The last stays."""
        dropped = 0
        while True:
            end = (dropped + 1) * CHUNK_RUNS
            if end >= len(self._runs) or self._runs[end - 1].source_end > source_offset:
                break
            dropped += 1
        first = self._first_chunk
        if dropped:
            gone = dropped * CHUNK_RUNS
            del self._runs[:gone], self._sources[:gone], self._targets[:gone]
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
                made._runs.append(run)
                made._sources.append(run.source)
                made._targets.append(run.target)
        return made

    def cut(self, source_offset: int) -> tuple[set[int], set[int]]:
        """Forget what is from `source_offset` on, as the source lost it: (chunks that changed,
        chunks that are gone)."""
        before = self._first_chunk + -(-len(self._runs) // CHUNK_RUNS)
        while self._runs and self._runs[-1].source >= source_offset:
            del self._runs[-1], self._sources[-1], self._targets[-1]
        last = self.last
        if last is not None and last.source_end > source_offset:
            self._runs[-1] = last._replace(length=source_offset - last.source)
        after = self._first_chunk + -(-len(self._runs) // CHUNK_RUNS)
        changed = {after - 1} if self._runs else set()
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
    direction, which wrote the source's first records; `orphans_end`: where the target's lost tail
    ends, which comes between those and what this mirror wrote.
    """
    offset = min(offset, position)
    is_ours = own.first is not None and offset >= own.first.source
    if is_ours or (reverse is None and orphans_end is None):
        return own.to_target(offset)
    if reverse is None:
        return None  # from before the lost tail, and the map of that time cannot be read
    last = reverse.last
    if last is not None and offset < last.target_end:
        return reverse.to_source(offset)
    found = own.to_target(offset)
    return orphans_end if found is None else found
