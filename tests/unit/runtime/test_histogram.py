"""Histograms of times in plain numbers."""

from __future__ import annotations

from math import inf

from headwater_broker.runtime.histogram import TIME_BOUNDS_S, Histogram


def test_each_value_counts_in_every_bucket_from_its_own_on() -> None:
    histogram = Histogram()
    histogram.observe(TIME_BOUNDS_S[0])
    histogram.observe(TIME_BOUNDS_S[0] * 1.01, weight=3)
    histogram.observe(TIME_BOUNDS_S[-1] + 1)
    rows = dict(histogram.cumulative())
    assert list(rows) == [*TIME_BOUNDS_S, inf]
    assert rows[TIME_BOUNDS_S[0]] == 1
    assert rows[TIME_BOUNDS_S[1]] == rows[TIME_BOUNDS_S[-1]] == 4
    assert rows[inf] == histogram.count == 5
    assert histogram.sum_s == TIME_BOUNDS_S[0] * 4.03 + TIME_BOUNDS_S[-1] + 1
