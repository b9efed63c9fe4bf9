"""What to read: from positions, limits and the tier boundary to splits. Pure: no I/O, no clock.

A split is one task's work: offsets [start, end) of one partition, read either from the brokers
(hot) or from the topic's log table (cold). Offsets may have gaps; that is normal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from headwater_spark.source.positions import Offsets, Position

COLD_OFFSETS_MIN = 200_000
"""Fewer tiered offsets than this are fetched while a broker has them: opening files costs more."""

PartitionId = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Seen:
    """What the brokers say now of every wanted partition."""

    topic_ids: Mapping[str, str]
    earliest: Offsets
    latest: Offsets
    """The first offset that may not be read yet: last stable offset, or high watermark."""


@dataclass(frozen=True, slots=True)
class Step:
    """The next micro-batch (None: nothing new), and what was lost on the way, as sentences."""

    position: Position | None
    losses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Split:
    """One task's work. Picklable and small."""

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    cold: bool = False
    topic_id: str = ""

    @property
    def offsets(self) -> int:
        """How many offsets it spans."""
        return self.end_offset - self.start_offset


@dataclass(frozen=True, slots=True)
class Boundary:
    """Where a partition's history and hot log meet."""

    local_start: int
    """The first offset that a broker has on its own disk."""
    tiered_start: int
    tiered_end: int
    """Offsets [tiered_start, tiered_end) are in the table."""


def first_step(starts: Offsets, seen: Seen) -> Step:
    """Batch 0, which pins where the query started. `starts` are resolved offsets."""
    losses = [
        f"{topic}-{partition}: starting offset {start} is outside the log"
        f" [{seen.earliest[topic, partition]}, {seen.latest[topic, partition]}]"
        for (topic, partition), start in sorted(starts.items())
        if not seen.earliest[topic, partition] <= start <= seen.latest[topic, partition]
    ]
    clamped = {
        tp: min(max(start, seen.earliest[tp]), seen.latest[tp]) for tp, start in starts.items()
    }
    return Step(Position(clamped, dict(seen.latest), dict(seen.topic_ids)), tuple(losses))


def next_step(previous: Position, seen: Seen) -> Step:
    """The batch after `previous`, up to the newest offsets and without limits.

    A partition that is new to the query starts at the log start, and is pinned there even while it
    is empty. A topic whose id changed is another topic: its partitions start anew, which is a loss.
    """
    losses: list[str] = []
    recreated = set()
    for topic, old in sorted(previous.topic_ids.items()):
        now = seen.topic_ids.get(topic)
        if now is None:
            losses.append(f"topic {topic} is gone")
        elif now != old:
            recreated.add(topic)
            losses.append(f"topic {topic} was deleted and created again (id {old}, now {now})")
    start: dict[PartitionId, int] = {}
    for tp, earliest in seen.earliest.items():
        known = previous.end.get(tp)
        if known is None or tp[0] in recreated:
            start[tp] = earliest
            continue
        if known < earliest:
            losses.append(f"{tp[0]}-{tp[1]}: offsets {known} to {earliest - 1} have aged out")
        start[tp] = max(known, earliest)
    missing = sorted(set(previous.end) - set(seen.earliest))
    losses += [f"{t}-{p}: the partition is gone" for t, p in missing if t in seen.topic_ids]
    # A leader that is behind what was read already has nothing new; `behind` tells of it.
    end = {tp: max(offset, start[tp]) for tp, offset in seen.latest.items()}
    position = Position(start, end, dict(seen.topic_ids))
    is_new = (
        start != end
        or start != dict(previous.end)
        or position.topic_ids != dict(previous.topic_ids)
    )
    return Step(position if is_new else None, tuple(losses))


def behind(previous: Position, seen: Seen) -> tuple[str, ...]:
    """Partitions whose log ends before what was read: a cut log, or a leader catching up."""
    return tuple(
        f"{topic}-{partition}: the log ends at {seen.latest[topic, partition]}, but {offset} was"
        " already reached"
        for (topic, partition), offset in sorted(previous.end.items())
        if (topic, partition) in seen.latest
        and seen.latest[topic, partition] < offset
        and previous.topic_ids.get(topic) == seen.topic_ids.get(topic)
    )


def limit_offsets(position: Position, offsets_max: int) -> Position:
    """At most `offsets_max` offsets, shared out by each partition's backlog (as Kafka's source).

    Every partition with a backlog gets at least one, so that none starves behind a large one.
    """
    backlog = {tp: end - position.start[tp] for tp, end in position.end.items()}
    total = sum(size for size in backlog.values() if size > 0)
    if total <= offsets_max:
        return position
    end: dict[PartitionId, int] = {}
    for tp, size in backlog.items():
        share = offsets_max * size / total if size > 0 else 0.0
        whole = 1 if 0 < share < 1 else int(share)
        end[tp] = position.start[tp] + min(size, whole)
    return replace(position, end=end)


def limit_ends(position: Position, ends: Offsets) -> Position:
    """Not beyond `ends` (a byte limit, or Trigger.AvailableNow's target).

    A partition absent from `ends` does not advance; none goes backwards.
    """
    end = {
        tp: max(position.start[tp], min(last, ends.get(tp, position.start[tp])))
        for tp, last in position.end.items()
    }
    return replace(position, end=end)


def byte_shares(position: Position, bytes_max: int) -> dict[PartitionId, int]:
    """How many bytes each partition with a backlog may read, by backlog; at least one each."""
    backlog = {tp: end - position.start[tp] for tp, end in position.end.items()}
    total = sum(size for size in backlog.values() if size > 0)
    return {tp: max(1, bytes_max * size // total) for tp, size in backlog.items() if size > 0}


def splits(
    position: Position,
    boundaries: Mapping[PartitionId, Boundary],
    *,
    min_partitions: int | None = None,
    max_records: int | None = None,
) -> tuple[Split, ...]:
    """The tasks of one batch: cut at the tier boundary, then by the two options.

    Without options a partition's hot range is one task, as one task reads in offset order.
    """
    whole: list[Split] = []
    for (topic, partition), end in sorted(position.end.items()):
        start = position.start[topic, partition]
        if end <= start:
            continue
        topic_id = position.topic_ids.get(topic, "")
        piece = Split(topic, partition, start, end, topic_id=topic_id)
        whole += _cut_at(piece, boundaries.get((topic, partition)))
    if max_records is not None:
        whole = [part for split in whole for part in cut(split, -(-split.offsets // max_records))]
    return tuple(_at_least(whole, min_partitions or 0))


def cut(split: Split, parts: int) -> list[Split]:
    """The same offsets in `parts` pieces of nearly equal size (fewer if it is that small)."""
    parts = max(1, min(parts, split.offsets))
    edges = [split.start_offset + split.offsets * i // parts for i in range(parts + 1)]
    return [replace(split, start_offset=a, end_offset=b) for a, b in pairwise(edges)]


def _cut_at(split: Split, boundary: Boundary | None) -> list[Split]:
    if boundary is None or split.start_offset < boundary.tiered_start:
        return [split]
    edge = min(boundary.tiered_end, split.end_offset)
    tiered = edge - split.start_offset
    is_local = split.start_offset >= boundary.local_start
    if tiered <= 0 or (is_local and tiered < COLD_OFFSETS_MIN):
        return [split]
    pieces = [replace(split, end_offset=edge, cold=True)]
    if edge < split.end_offset:
        pieces.append(replace(split, start_offset=edge))
    return pieces


def _at_least(whole: Sequence[Split], wanted: int) -> list[Split]:
    """Cut the large ones, in proportion to their size, so that about `wanted` tasks result."""
    if not whole or len(whole) >= wanted:
        return list(whole)
    total = sum(split.offsets for split in whole)
    result: list[Split] = []
    for split in whole:
        result += cut(split, round(split.offsets * wanted / total))
    return result
