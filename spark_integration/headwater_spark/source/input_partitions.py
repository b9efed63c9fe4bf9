"""Cuts a micro-batch into splits, one per task (Spark's KafkaOffsetRangeCalculator). Pure.

A split is one task's work: offsets [start, end) of one partition, read either from the brokers
(hot) or from the topic's log table (cold): `tier_boundary` says where the edge is. Offsets may have
gaps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from headwater_spark.source.positions import PartitionId, Position
from headwater_spark.source.tier_boundary import Boundary, cut_at


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
    if boundary is None:
        return [split]
    return [
        replace(split, start_offset=r.start, end_offset=r.end, cold=r.is_cold)
        for r in cut_at(boundary, split.start_offset, split.end_offset)
    ]


def _at_least(whole: Sequence[Split], wanted: int) -> list[Split]:
    """Cut the splits in proportion to their size into about `wanted` ones."""
    if not whole or len(whole) >= wanted:
        return list(whole)
    total = sum(split.offsets for split in whole)
    result: list[Split] = []
    for split in whole:
        result += cut(split, round(split.offsets * wanted / total))
    return result
