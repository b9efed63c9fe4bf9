"""Periodic work: its first run, and that a failure does not end it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from headwater_broker.app.scheduler import Scheduler


class Timers:
    """A loop that only takes timers."""

    def __init__(self) -> None:
        self.due: list[tuple[float, Callable[..., None], tuple[Any, ...]]] = []

    def call_later(self, delay: float, work: Callable[..., None], *args: Any) -> SimpleNamespace:
        row = (delay, work, args)
        self.due.append(row)
        return SimpleNamespace(cancel=lambda: row in self.due and self.due.remove(row))

    def run_next(self) -> None:
        _, work, args = self.due.pop(0)
        work(*args)


def test_the_first_run_comes_after_its_delay_or_one_interval() -> None:
    timers = Timers()
    scheduler = Scheduler(cast(asyncio.AbstractEventLoop, timers))
    scheduler.every("plain", 5, lambda: None)
    scheduler.every("soon", 300, lambda: None, first_s=30)
    scheduler.every("often", 1, lambda: None, first_s=30)
    assert [delay for delay, *_ in timers.due] == [5, 30, 1]


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
    assert [delay for delay, *_ in timers.due] == [300]


def test_an_interval_that_changes_counts_at_once() -> None:
    timers = Timers()
    scheduler = Scheduler(cast(asyncio.AbstractEventLoop, timers))
    calls: list[int] = []
    scheduler.every("compaction", 15, lambda: calls.append(1))
    scheduler.change_interval("compaction", 15)
    scheduler.change_interval("unknown", 1)
    assert [delay for delay, *_ in timers.due] == [15]
    scheduler.change_interval("compaction", 0.2)
    assert [delay for delay, *_ in timers.due] == [0.2]
    timers.run_next()
    assert calls == [1]
    assert [delay for delay, *_ in timers.due] == [0.2]


def test_work_may_change_its_own_interval() -> None:
    timers = Timers()
    scheduler = Scheduler(cast(asyncio.AbstractEventLoop, timers))
    scheduler.every("work", 1, lambda: scheduler.change_interval("work", 9))
    timers.run_next()
    assert [delay for delay, *_ in timers.due] == [9]
    scheduler.stop()
    scheduler.change_interval("work", 1)
    assert timers.due == []


def test_nothing_runs_after_the_stop_not_even_again_what_runs_then() -> None:
    timers = Timers()
    scheduler = Scheduler(cast(asyncio.AbstractEventLoop, timers))
    scheduler.every("other", 5, lambda: None)
    scheduler.every("stops", 1, scheduler.stop)
    timers.due.reverse()
    _, work, args = timers.due[0]
    work(*args)
    assert timers.due == []
