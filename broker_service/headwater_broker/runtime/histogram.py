"""A histogram of times in plain numbers: cheap to update, read when metrics are scraped."""

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
    """The number of values per bucket, and their sum."""

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
        """(upper bound, number of values up to it), the last bound is infinity."""
        yield from zip((*TIME_BOUNDS_S, float("inf")), accumulate(self._buckets), strict=True)
