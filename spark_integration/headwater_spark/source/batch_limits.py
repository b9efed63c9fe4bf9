"""Limits of a micro-batch: maxOffsetsPerTrigger, bytes, minOffsetsPerTrigger. Pure.

`batch_planner.limited` applies them to the ends that `batch_offsets` found.
"""

from __future__ import annotations

from dataclasses import replace

from headwater_spark.source.positions import Offsets, PartitionId, Position


def is_too_small(position: Position, previous: Position, offsets_min: int) -> bool:
    """True when `minOffsetsPerTrigger` lets the batch wait for more offsets.

    A batch that pins new partitions or topic ids never waits: their start is not logged until then.
    """
    if dict(position.start) != dict(previous.end):
        return False
    if dict(position.topic_ids) != dict(previous.topic_ids):
        return False
    return sum(end - position.start[tp] for tp, end in position.end.items()) < offsets_min


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
