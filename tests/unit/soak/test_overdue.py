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


def hang(ended: threading.Event, *samples: str) -> None:
    """A call with a timeout of 3 s that hangs. Each poll takes 1 s and serves one of the statistics
    in turn; later ones serve none."""
    now, left = [100.0], list(samples)
    statistics = Statistics(lambda: now[0])

    def poll() -> None:
        now[0] += 1
        if left:
            statistics.took(left.pop(0))

    in_time(ended.wait, 3.0, statistics, poll, poll_s=0)


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
        hang(ended, *[statistics_of(a=1, b=0)] * 5, statistics_of(a=0, b=0))


def test_a_call_that_hangs_while_a_request_waits_since_its_timeout_is_a_brokers_fault(
    ended: threading.Event,
) -> None:
    with pytest.raises(UnansweredError, match="'a': 2"):
        hang(ended, *[statistics_of(a=0, b=0)] * 3, *[statistics_of(a=2, b=0)] * 5)


def test_a_call_that_hangs_without_statistics_is_not_excused(ended: threading.Event) -> None:
    with pytest.raises(UnansweredError):
        hang(ended)
