"""Which minutes are over, and where they differ."""

from __future__ import annotations

import numpy as np

from headwater_tier.audit.minutes import MINUTE_MS, PRODUCED, MinuteRow, Minutes

GRACE = 5 * MINUTE_MS
LATE = 100 * MINUTE_MS


def times(*minutes: float) -> np.ndarray:
    return np.array([int(m * MINUTE_MS) for m in minutes], dtype=np.int64)


def rows(minutes: Minutes, now: int = LATE, quiet: bool = True) -> list[MinuteRow]:
    return minutes.rows({0: quiet, 1: quiet}, now)


def test_records_are_counted_by_the_minute_of_their_timestamp() -> None:
    minutes = Minutes("t", ["table"], GRACE)
    minutes.add(PRODUCED, 0, times(0, 0.5, 1), LATE)
    minutes.add(PRODUCED, 1, times(1.9), LATE)
    minutes.add("table", 0, times(0, 0.5, 1), LATE)
    found = rows(minutes)
    assert [(row.minute_ms, row.produced, dict(row.counts)) for row in found] == [
        (0, 2, {"table": 2}),
        (MINUTE_MS, 2, {"table": 1}),
    ]
    assert [row.differing for row in found] == [{}, {"table": -1}]


def test_records_that_only_another_place_has_differ() -> None:
    minutes = Minutes("t", ["mirror"], GRACE)
    minutes.add("mirror", 0, times(3), LATE)
    assert [row.differing for row in rows(minutes)] == [{"mirror": 1}]


def test_a_minute_is_open_until_each_partition_is_past_it() -> None:
    minutes = Minutes("t", ["table"], GRACE)
    minutes.add(PRODUCED, 0, times(0, 6), LATE)
    minutes.add(PRODUCED, 1, times(0, 5.9), LATE)
    assert not rows(minutes, quiet=False)[0].is_closed, "partition 1 is not past 0:06"
    minutes.add(PRODUCED, 1, times(6), LATE)
    assert rows(minutes, quiet=False)[0].is_closed
    assert not rows(minutes, quiet=False)[-1].is_closed


def test_partitions_without_records_are_passed_by_the_clock() -> None:
    minutes = Minutes("t", ["table"], GRACE)
    minutes.add(PRODUCED, 0, times(0), 0)
    assert not rows(minutes, now=MINUTE_MS + GRACE - 1)[0].is_closed
    assert rows(minutes, now=MINUTE_MS + GRACE)[0].is_closed


def test_a_late_record_opens_its_minute_again() -> None:
    minutes = Minutes("t", ["group g"], GRACE)
    minutes.add(PRODUCED, 0, times(0), LATE)
    minutes.add("group g", 0, times(0), LATE)
    assert rows(minutes)[0].is_closed
    minutes.add(PRODUCED, 0, times(0.2), LATE)
    assert not rows(minutes)[0].is_closed, "the group may still read it"
    (row,) = rows(minutes, now=LATE + GRACE)
    assert row.is_closed and row.differing == {"group g": -1}


def test_minutes_with_deleted_records_are_not_judged() -> None:
    minutes = Minutes("t", ["table"], GRACE)
    minutes.since_ms = MINUTE_MS
    minutes.add("table", 0, times(0, 1), LATE)
    assert [row.is_closed for row in rows(minutes)] == [False, True]
