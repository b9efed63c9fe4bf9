"""A range of offsets of one partition: what a scan reads, from brokers or from a table. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Span:
    """Offsets [start, end) of a partition."""

    partition: int
    start: int
    end: int
