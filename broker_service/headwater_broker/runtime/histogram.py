"""A histogram of times in plain numbers: counted where things happen, read when metrics are."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate

TIME_BOUNDS_S = (
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    5.0,
)
"""Upper bounds of the buckets; above the last one there is one bucket more."""


class Histogram:
    """How many values are at most each bound, and their sum."""

    __slots__ = ("_buckets", "count", "sum_s")

    def __init__(self) -> None:
        self._buckets = [0] * (len(TIME_BOUNDS_S) + 1)
        self.count = 0
        self.sum_s = 0.0

    def observe(self, seconds: float, weight: int = 1) -> None:
        """Count a value `weight` times."""
        self._buckets[bisect_left(TIME_BOUNDS_S, seconds)] += weight
        self.count += weight
        self.sum_s += seconds * weight

    def cumulative(self) -> Iterator[tuple[float, int]]:
        """(upper bound, how many values are not above it), up to infinity."""
        yield from zip((*TIME_BOUNDS_S, float("inf")), accumulate(self._buckets), strict=True)
