"""Plans micro-batches and splits from offsets, limits and the tier boundary. Pure.

A split is one task's work: offsets [start, end) of one partition, read either from the brokers
(hot) or from the topic's log table (cold). Offsets may have gaps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from headwater_spark.source.positions import Offsets, Position

COLD_OFFSETS_MIN = 200_000
"""A smaller tiered range is fetched if a broker has it locally: opening files would cost more."""

PartitionId = tuple[str, int]


@dataclass(frozen=True, slots=True)
class CurrentOffsets:
    """The brokers' current offsets of every partition of a query."""

    topic_ids: Mapping[str, str]
    earliest: Offsets
    latest: Offsets
    """The readable end: last stable offset (read_committed) or high watermark."""


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """The next micro-batch, None when there is nothing new, and data losses as sentences."""

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
        """The number of offsets, gaps included."""
        return self.end_offset - self.start_offset


@dataclass(frozen=True, slots=True)
class Boundary:
    """Which offsets of a partition are in the table, and which the leader has locally."""

    local_start: int
    """The leader's local log start offset (KIP-405)."""
    tiered_start: int
    tiered_end: int
    """Offsets [tiered_start, tiered_end) are in the table."""
    runs: tuple[tuple[int, int], ...] = ()
    """Of a table with wide gaps: the ranges that have rows. Empty: all offsets may have them."""


def plan_first_batch(starts: Offsets, current: CurrentOffsets) -> BatchPlan:
    """Batch 0, which pins the query's start. `starts` are resolved offsets."""
    losses = [
        f"{topic}-{partition}: starting offset {start} is outside the log"
        f" [{current.earliest[topic, partition]}, {current.latest[topic, partition]}]"
        for (topic, partition), start in sorted(starts.items())
        if not current.earliest[topic, partition] <= start <= current.latest[topic, partition]
    ]
    clamped = {
        tp: min(max(start, current.earliest[tp]), current.latest[tp])
        for tp, start in starts.items()
    }
    return BatchPlan(
        Position(clamped, dict(current.latest), dict(current.topic_ids)), tuple(losses)
    )


Reads = Callable[[str, int], bool]
"""(topic, partition) -> True when the query's options name it."""


def every_partition(_topic: str, _partition: int) -> bool:
    """A query that reads every partition."""
    return True


def gone_topics(
    previous: Position, current: CurrentOffsets, reads: Reads = every_partition
) -> tuple[str, ...]:
    """Topics of the last batch that the query reads, but the brokers do not list."""
    missing = set(previous.topic_ids) - set(current.topic_ids)
    return tuple(
        sorted({topic for topic, p in previous.end if topic in missing and reads(topic, p)})
    )


def plan_next_batch(
    previous: Position, current: CurrentOffsets, reads: Reads = every_partition
) -> BatchPlan:
    """The batch after `previous`, up to the newest offsets and without limits.

    A partition that is new to the query starts at its log start, and the batch pins that start even
    if the partition is empty. A topic with another id is another topic: its partitions start at
    their log start, and that counts as data loss.

    A partition that the brokers do not list keeps its position, so that it continues there if it
    was only missing from one broker's metadata, and a topic created again is known by its id.
    `reads` is false for partitions that the query's options no longer name: their position is
    dropped, which counts as data loss too.
    """
    losses = [f"topic {topic} is gone" for topic in gone_topics(previous, current, reads)]
    recreated = set()
    for topic, old in sorted(previous.topic_ids.items()):
        now = current.topic_ids.get(topic)
        if now not in (None, old):
            recreated.add(topic)
            losses.append(f"topic {topic} was deleted and created again (id {old}, now {now})")
    start: dict[PartitionId, int] = {}
    for tp, earliest in current.earliest.items():
        known = previous.end.get(tp)
        if known is None or tp[0] in recreated:
            start[tp] = earliest
            continue
        if known < earliest:
            losses.append(f"{tp[0]}-{tp[1]}: offsets {known} to {earliest - 1} have aged out")
        start[tp] = max(known, earliest)
    # A leader whose log ends before what was read has nothing new (see `truncated_partitions`).
    end = {tp: max(offset, start[tp]) for tp, offset in current.latest.items()}
    topic_ids = dict(current.topic_ids)
    for tp in sorted(set(previous.end) - set(current.earliest)):
        if not reads(*tp):
            losses.append(f"{tp[0]}-{tp[1]}: in the checkpoint, but the options no longer name it")
        elif tp[0] not in recreated:
            start[tp] = end[tp] = previous.end[tp]
            topic_ids[tp[0]] = previous.topic_ids[tp[0]]
    position = Position(start, end, topic_ids)
    is_new = (
        start != end
        or start != dict(previous.end)
        or position.topic_ids != dict(previous.topic_ids)
    )
    return BatchPlan(position if is_new else None, tuple(losses))


def plan_again(position: Position, current: CurrentOffsets) -> BatchPlan:
    """A batch that an earlier run logged and did not finish, held against the brokers' offsets.

    Its offsets are of the topic ids in it: under a topic with another id they are other records.
    """
    losses: list[str] = []
    start, end = dict(position.start), dict(position.end)
    for tp in sorted(tp for tp, last in position.end.items() if last > position.start[tp]):
        name = f"{tp[0]}-{tp[1]}"
        planned = f"{name}: the checkpoint planned offsets {start[tp]} to {end[tp] - 1}"
        old, now = position.topic_ids.get(tp[0]), current.topic_ids.get(tp[0])
        if now is None or tp not in current.latest:
            losses.append(f"{planned}, but it is gone")
            end[tp] = start[tp]
        elif old != now:
            losses.append(f"{planned} of topic id {old}, but the topic now has id {now}")
            end[tp] = start[tp]
        else:
            first, last = current.earliest[tp], current.latest[tp]
            if start[tp] < first or end[tp] > last:
                losses.append(f"{planned}, but the log has {first} to {last - 1}")
            start[tp] = min(max(start[tp], first), end[tp])
            end[tp] = max(start[tp], min(end[tp], last))
    return BatchPlan(replace(position, start=start, end=end), tuple(losses))


def is_too_small(position: Position, previous: Position, offsets_min: int) -> bool:
    """True when `minOffsetsPerTrigger` lets the batch wait for more offsets.

    A batch that pins new partitions or topic ids never waits: their start is not logged until then.
    """
    if dict(position.start) != dict(previous.end):
        return False
    if dict(position.topic_ids) != dict(previous.topic_ids):
        return False
    return sum(end - position.start[tp] for tp, end in position.end.items()) < offsets_min


def truncated_partitions(previous: Position, current: CurrentOffsets) -> tuple[str, ...]:
    """Partitions whose log ends before the offset already read, as sentences.

    Either the log was truncated, or a new leader has not caught up with the high watermark yet.
    """
    return tuple(
        f"{topic}-{partition}: the log ends at {current.latest[topic, partition]}, but the query"
        f" has read up to {offset}"
        for (topic, partition), offset in sorted(previous.end.items())
        if (topic, partition) in current.latest
        and current.latest[topic, partition] < offset
        and previous.topic_ids.get(topic) == current.topic_ids.get(topic)
    )


def limit_offsets(position: Position, offsets_max: int) -> Position:
    """The batch cut to `offsets_max` offsets, in proportion to backlogs (as Spark's Kafka source).

    Every partition with a backlog gets at least one offset, so that a large one starves no other.
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
    """The batch cut at `ends`: a byte limit, or the end offsets of Trigger.AvailableNow.

    A partition without an entry in `ends` does not advance; none goes backwards.
    """
    end = {
        tp: max(position.start[tp], min(last, ends.get(tp, position.start[tp])))
        for tp, last in position.end.items()
    }
    return replace(position, end=end)


def byte_shares(position: Position, bytes_max: int) -> dict[PartitionId, int]:
    """`bytes_max` in proportion to backlogs; at least one byte per partition with a backlog."""
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
    """The splits of one batch: cut at the tier boundary, then by the two options.

    Without options a partition's hot range is one split: one task reads it in offset order.
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
    """A split in `parts` pieces of nearly equal size; never a piece without offsets."""
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
    cold = replace(split, end_offset=edge, cold=True)
    pieces = _cut_to(cold, boundary.runs) or [cold]
    if edge < split.end_offset:
        pieces.append(replace(split, start_offset=edge))
    return pieces


def _cut_to(split: Split, runs: Sequence[tuple[int, int]]) -> list[Split]:
    """What of a split is within the runs: a gap is nobody's work."""
    spans = [(max(a, split.start_offset), min(b, split.end_offset)) for a, b in runs]
    return [replace(split, start_offset=a, end_offset=b) for a, b in spans if a < b]


def _at_least(whole: Sequence[Split], wanted: int) -> list[Split]:
    """Cut the splits in proportion to their size into about `wanted` ones."""
    if not whole or len(whole) >= wanted:
        return list(whole)
    total = sum(split.offsets for split in whole)
    result: list[Split] = []
    for split in whole:
        result += cut(split, round(split.offsets * wanted / total))
    return result
