"""City time against real time."""

from __future__ import annotations

from city.clock import DAY_MS, DAY_START_MS, CityClock, at_hour, bucket_of, hour_of
from headwater.testing.clocks import ManualClock


def test_a_day_passes_in_the_seconds_given() -> None:
    clock = ManualClock()
    city = CityClock.starting(clock, 150.0)
    assert city.now_ms() == DAY_START_MS
    clock.advance(75_000)
    assert city.now_ms() == DAY_START_MS + DAY_MS // 2
    assert city.seconds_until(at_hour(18.0)) == 37.5


def test_real_seconds_count_once_a_record_is_sent() -> None:
    clock = ManualClock()
    city = CityClock.starting(clock, 150.0)
    sent = at_hour(12.0)
    stored_real = city.real_ms(sent) + 2_500
    assert city.ingest_ms(sent, stored_real) == sent + 2_500


def test_hours_and_buckets() -> None:
    assert hour_of(at_hour(18.5)) == 18
    assert bucket_of(at_hour(18.5)) == 111


def test_the_clock_stands_at_midnight_until_the_day_begins() -> None:
    clock = ManualClock()
    city = CityClock(clock, 150.0)
    clock.advance(10_000)
    assert city.now_ms() == DAY_START_MS
    city.begin()
    clock.advance(150_000)
    assert city.now_ms() == DAY_START_MS + DAY_MS
