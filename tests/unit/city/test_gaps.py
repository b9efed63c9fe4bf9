"""The quality monitor's rules: short gaps close by themselves, lasting and widening ones alarm."""

from __future__ import annotations

from city.gaps import Bucket, GapRule, ShortGap, Suspects, suspects


def seen(*gaps: int, produced: int = 1000) -> tuple[list[bool | None], GapRule]:
    rule = GapRule()
    changes = [rule.see(Bucket(n, produced, produced - gap)) for n, gap in enumerate(gaps)]
    return changes, rule


def test_blurred_pictures_are_no_gap() -> None:
    changes, rule = seen(20, 25, 30, 20, 20, 20)
    assert changes == [None] * 6
    assert rule.short_gaps == []


def test_a_gap_of_few_records_is_none_whatever_its_share() -> None:
    assert not Bucket(0, 10, 5).has_gap
    assert Bucket(0, 10, 4).has_gap
    assert not Bucket(0, 0, 0).has_gap


def test_a_gap_that_shrinks_and_closes_does_not_alarm() -> None:
    changes, rule = seen(20, 100, 95, 90, 80, 70, 60, 20)
    assert changes == [None] * 8
    assert rule.short_gaps == [ShortGap(1, 6)]


def test_a_gap_that_lasts_and_widens_alarms_once_and_closes() -> None:
    changes, rule = seen(20, 40, 50, 60, 70, 80, 90, 20, 20)
    assert changes == [None, None, None, None, True, None, None, False, None]
    assert rule.short_gaps == []


def test_three_buckets_are_too_short() -> None:
    changes, _ = seen(40, 60, 80, 20)
    assert True not in changes


def test_a_server_is_suspected_when_most_abnormal_records_came_through_it() -> None:
    usual = {(f"10.0.0.{n}", f"10.0.0.{n}"): 4 for n in range(20)}
    failing = {("10.1.0.1", "10.1.0.254"): 90, ("10.1.0.2", "10.1.0.254"): 80}
    smart = {("10.2.0.1", "10.2.0.1"): 100}
    found = suspects({**usual, **failing, **smart})
    assert found == Suspects(("10.2.0.1", "10.1.0.1", "10.1.0.2"), "10.1.0.254")
    more = {("10.2.0.2", "10.2.0.2"): 100}
    assert suspects({**usual, **failing, **smart, **more}).server is None
    assert suspects({}) == Suspects((), None)
