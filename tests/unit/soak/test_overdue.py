"""A call that hangs is judged by the requests that wait for brokers meanwhile."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import pytest

from soak.overdue import OverdueError, Statistics, UnansweredError, in_time


def statistics_of(**waiting: int) -> str:
    return json.dumps({"brokers": {name: {"waitresp_cnt": n} for name, n in waiting.items()}})


@pytest.fixture
def ended() -> Iterator[threading.Event]:
    """A call that waits for it hangs until the test is over."""
    event = threading.Event()
    yield event
    event.set()


def late(ended: threading.Event, statistics: Statistics, *samples: str) -> None:
    """A call that hangs while `poll` serves these statistics in turn, the last one for ever."""
    left = list(samples)

    def poll() -> None:
        statistics.took(left.pop(0) if len(left) > 1 else left[0])

    in_time(ended.wait, 0.0, statistics, poll, grace_s=0.5)


def test_a_call_that_returns_in_time_is_none_of_ours() -> None:
    made: list[str] = []
    in_time(lambda: made.append("called"), 9.0, Statistics(), lambda: None)
    assert made == ["called"]


def test_what_the_call_raises_is_raised_even_if_it_is_a_timeout() -> None:
    def call() -> None:
        raise TimeoutError("its own")

    with pytest.raises(TimeoutError, match="its own"):
        in_time(call, 9.0, Statistics(), lambda: None)


def test_a_call_that_hangs_while_no_request_waits_is_overdue(ended: threading.Event) -> None:
    with pytest.raises(OverdueError, match="no request waits"):
        late(ended, Statistics(), statistics_of(a=1, b=0), statistics_of(a=0, b=0))


def test_a_call_that_hangs_while_a_request_waits_is_a_brokers_fault(ended: threading.Event) -> None:
    with pytest.raises(UnansweredError, match="'a': 2"):
        late(ended, Statistics(), statistics_of(a=2, b=0))


def test_a_call_that_hangs_without_statistics_is_not_excused(ended: threading.Event) -> None:
    with pytest.raises(UnansweredError):
        in_time(ended.wait, 0.0, Statistics(), lambda: None, grace_s=0.3)


def test_a_client_that_was_idle_only_before_the_timeout_is_not_excused() -> None:
    now = [5.0]
    statistics = Statistics(lambda: now[0])
    statistics.took(statistics_of(a=0))
    now[0] = 7.0
    statistics.took(statistics_of(a=1))
    assert statistics.was_idle_since(4.0)
    assert not statistics.was_idle_since(6.0)
