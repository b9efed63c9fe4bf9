"""The edge between a topic's log table (cold) and the brokers (hot) in a micro-batch. Pure.

`batch_planner` asks the table and the leader for each partition's `Boundary`; `input_partitions`
cuts the splits at it. A union read has its own edge (`union_read`): the tiered end in the version
of the table that it reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

COLD_OFFSETS_MIN = 200_000
"""A smaller tiered range is fetched if a broker has it locally: opening files would cost more."""


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


class OffsetRange(NamedTuple):
    """Offsets [start, end) of a partition, read from the table (`is_cold`) or from the brokers."""

    start: int
    end: int
    is_cold: bool


def cut_at(boundary: Boundary, start: int, end: int) -> list[OffsetRange]:
    """Offsets [start, end) in ranges that are read from one side each."""
    edge = min(boundary.tiered_end, end)
    tiered = edge - start
    is_local = start >= boundary.local_start
    if start < boundary.tiered_start or tiered <= 0 or (is_local and tiered < COLD_OFFSETS_MIN):
        return [OffsetRange(start, end, False)]
    # A gap within the table is no task's work.
    spans = [(max(a, start), min(b, edge)) for a, b in boundary.runs]
    cold = [OffsetRange(a, b, True) for a, b in spans if a < b]
    ranges = cold or [OffsetRange(start, edge, True)]
    if edge < end:
        ranges.append(OffsetRange(edge, end, False))
    return ranges
