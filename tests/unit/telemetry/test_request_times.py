"""Times of requests: the timed ones stand for all, and no request counts twice."""

from __future__ import annotations

import pytest

from headwater_broker.api.request_meters import ApiMeter
from headwater_broker.api.request_timing import STAGES, RequestTiming


class Clock:
    """The loop's clock, moved by hand."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def count(meter: ApiMeter, number: int) -> None:
    """Requests that are not timed."""
    meter.requests += number


def timed(meter: ApiMeter, clock: Clock, turn: int) -> RequestTiming:
    meter.requests += 1
    return meter.begin(turn, clock.now_s, clock)


def stage_sums(meter: ApiMeter) -> dict[str, float]:
    return dict(zip(STAGES, (h.sum_s for h in meter.stages), strict=True))


def test_a_request_s_time_is_split_by_stage() -> None:
    meter, clock = ApiMeter(), Clock()
    meter.requests += 1
    arrived = clock.now_s
    clock.now_s += 1
    timing = meter.begin(1, arrived, clock)
    clock.now_s += 2
    assert timing.handled() == 2
    clock.now_s += 4
    timing.ready()
    timing.throttle_s = 16
    clock.now_s += 8
    timing.sent()
    timing.sent()
    sums = {"queue": 1, "local": 2, "remote": 4, "throttle": 16, "send": 8}
    assert stage_sums(meter) == sums
    assert (meter.total.count, meter.total.sum_s) == (1, 15)
    assert {h.count for h in meter.stages} == {1}


def test_a_reply_that_was_not_parked_has_no_remote_time() -> None:
    meter, clock = ApiMeter(), Clock()
    timing = timed(meter, clock, 1)
    clock.now_s += 1
    timing.handled()
    clock.now_s += 1
    timing.sent()
    assert stage_sums(meter) == {"queue": 0, "local": 1, "remote": 0, "throttle": 0, "send": 1}


def test_a_request_whose_connection_is_lost_in_the_handler_counts_until_then() -> None:
    meter, clock = ApiMeter(), Clock()
    timing = timed(meter, clock, 1)
    clock.now_s += 3
    timing.sent()
    assert (meter.total.count, meter.total.sum_s) == (1, 3)


@pytest.mark.parametrize("per_turn", [1, 5])
def test_timed_requests_stand_for_all_and_evenly(per_turn: int) -> None:
    meter, clock = ApiMeter(), Clock()
    for turn in range(50):
        count(meter, 99 * per_turn)
        for _ in range(per_turn):
            timing = timed(meter, clock, turn)
            clock.now_s += 0.001
            timing.sent()
    assert meter.total.count == meter.requests == 50 * 100 * per_turn
    assert meter.total.sum_s == pytest.approx(0.001 * meter.requests)
    assert {h.count for h in meter.stages} == {meter.requests}


def test_slow_requests_keep_their_share_when_others_overtake_them() -> None:
    meter, clock = ApiMeter(), Clock()
    count(meter, 9)
    slow = timed(meter, clock, 1)
    for turn in range(2, 12):
        count(meter, 9)
        timed(meter, clock, turn).sent()
    clock.now_s += 10
    slow.sent()
    assert meter.total.count == meter.requests == 110
    assert meter.total.sum_s == 100


def test_before_a_scrape_the_rest_counts_as_the_last_timed_one() -> None:
    meter, clock = ApiMeter(), Clock()
    count(meter, 7)
    meter.settle()
    assert meter.total.count == 0, "nothing was timed yet"
    timing = timed(meter, clock, 1)
    clock.now_s += 2
    timing.sent()
    count(meter, 3)
    meter.settle()
    meter.settle()
    assert (meter.total.count, meter.total.sum_s) == (11, 22)
    timed(meter, clock, 2).sent()
    assert meter.total.count == meter.requests == 12


def test_an_awaited_request_stands_for_itself_alone() -> None:
    """Metadata that creates a topic takes long: it must not stand for those from the cache."""
    meter, clock = ApiMeter(), Clock()
    timed(meter, clock, 1).sent()
    count(meter, 99)
    sampled = timed(meter, clock, 2)
    sampled.stand_alone()
    sampled.stand_alone()
    meter.requests += 1
    other = meter.begin_alone(clock.now_s, clock.now_s, clock)
    clock.now_s += 10
    sampled.sent()
    other.sent()
    assert (meter.total.count, meter.total.sum_s) == (3, 20)
    meter.settle()
    assert meter.total.count == meter.requests == 102
    assert meter.total.sum_s == 20, "the rest took as long as the one that was not awaited"


def test_awaited_requests_leave_the_others_their_weight() -> None:
    meter, clock = ApiMeter(), Clock()
    for turn in range(50):
        count(meter, 9)
        meter.requests += 1
        meter.begin_alone(clock.now_s, clock.now_s, clock).sent()
        timed(meter, clock, turn).sent()
    assert meter.total.count == meter.requests == 50 * 11


def test_the_rest_counts_as_an_awaited_request_where_no_other_was_timed() -> None:
    meter, clock = ApiMeter(), Clock()
    meter.requests += 1
    meter.begin_alone(clock.now_s, clock.now_s, clock).sent()
    count(meter, 4)
    meter.settle()
    assert meter.total.count == meter.requests == 5
