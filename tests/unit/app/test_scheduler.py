"""Periodic work: its first run, and that a failure does not end it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headwater_broker.app.scheduler import Scheduler


class Timers:
    """A loop that only takes timers; `due` has the time until each."""

    def __init__(self) -> None:
        self.now = 0.0
        self._rows: list[tuple[float, Callable[..., None], tuple[Any, ...]]] = []

    @property
    def due(self) -> list[float]:
        return [when - self.now for when, *_ in self._rows]

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, work: Callable[..., None], *args: Any) -> SimpleNamespace:
        row = (when, work, args)
        self._rows.append(row)
        return SimpleNamespace(
            cancel=lambda: row in self._rows and self._rows.remove(row), when=lambda: when
        )

    def run_next(self, late_s: float = 0) -> None:
        row = min(self._rows, key=lambda row: row[0])
        self._rows.remove(row)
        when, work, args = row
        self.now = when + late_s
        work(*args)


def test_the_first_run_comes_after_its_delay_or_one_interval() -> None:
    timers = Timers()
    scheduler = Scheduler(cast(asyncio.AbstractEventLoop, timers))
    scheduler.every("plain", 5, lambda: None)
    scheduler.every("soon", 300, lambda: None, first_s=30)
    scheduler.every("often", 1, lambda: None, first_s=30)
    assert timers.due == [5, 30, 1]


def test_work_that_fails_comes_again_after_its_interval() -> None:
    timers = Timers()
    scheduler = Scheduler(cast(asyncio.AbstractEventLoop, timers))
    calls: list[int] = []

    def work() -> None:
        calls.append(1)
        raise ValueError("told in the log")

    scheduler.every("failing", 300, work, first_s=30)
    timers.run_next()
    timers.run_next()
    assert len(calls) == 2
    assert timers.due == [300]


def test_an_interval_that_changes_counts_at_once() -> None:
    timers = Timers()
    scheduler = Scheduler(cast(asyncio.AbstractEventLoop, timers))
    calls: list[int] = []
    scheduler.every("compaction", 15, lambda: calls.append(1))
    scheduler.change_interval("compaction", 15)
    scheduler.change_interval("unknown", 1)
    assert timers.due == [15]
    scheduler.change_interval("compaction", 0.2)
    assert timers.due == [0.2]
    timers.run_next()
    assert calls == [1]
    assert timers.due == [0.2]


def test_work_may_change_its_own_interval() -> None:
    timers = Timers()
    scheduler = Scheduler(cast(asyncio.AbstractEventLoop, timers))
    scheduler.every("work", 1, lambda: scheduler.change_interval("work", 9))
    timers.run_next()
    assert timers.due == [9]
    scheduler.stop()
    scheduler.change_interval("work", 1)
    assert timers.due == []


def test_nothing_runs_after_the_stop_not_even_again_what_runs_then() -> None:
    timers = Timers()
    scheduler = Scheduler(cast(asyncio.AbstractEventLoop, timers))
    scheduler.every("other", 5, lambda: None)
    scheduler.every("stops", 1, scheduler.stop)
    timers.run_next()
    assert timers.due == []


@pytest.mark.parametrize(
    ("late_s", "takes_s", "next_s"),
    [(0, 0, 5), (0, 2, 3), (1, 2, 2), (4, 1, 5), (5, 0, 5), (0, 12, 3), (3600, 1, 4)],
)
def test_neither_late_nor_slow_work_moves_its_later_runs(
    late_s: float, takes_s: float, next_s: float
) -> None:
    """Every 5 s; runs that were missed are left out, not made up for."""
    timers = Timers()
    scheduler = Scheduler(cast(asyncio.AbstractEventLoop, timers))

    def work() -> None:
        timers.now += takes_s

    scheduler.every("work", 5, work)
    timers.run_next(late_s)
    assert timers.due == [next_s]


def test_work_without_a_pause_runs_again_at_once() -> None:
    timers = Timers()
    scheduler = Scheduler(cast(asyncio.AbstractEventLoop, timers))
    scheduler.every("work", 0, lambda: None)
    timers.run_next(late_s=2)
    assert timers.due == [0]
