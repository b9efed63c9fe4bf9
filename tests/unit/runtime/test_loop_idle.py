"""The share of time in which the loop has nothing to do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headwater_broker.runtime.event_loop import MeasuredLoop
from headwater_broker.runtime.loop_lag import LagProbe, TurnClock

HELD_S = 0.02


def test_only_waits_without_anything_to_do_are_idle() -> None:
    async def scenario() -> None:
        loop = cast(MeasuredLoop, asyncio.get_running_loop())
        turns = loop.turns
        began, idle_s = time.monotonic(), turns.idle_s
        for _ in range(100):
            await asyncio.sleep(0)
        assert turns.idle_s == idle_s, "there was always something to do"
        for _ in range(3):
            await asyncio.sleep(0.002)
        assert turns.idle_s > idle_s
        until = time.thread_time() + HELD_S
        while time.thread_time() < until:
            pass
        await asyncio.sleep(0.001)
        assert turns.idle_s - idle_s < time.monotonic() - began - HELD_S

    with asyncio.Runner(loop_factory=MeasuredLoop) as runner:
        runner.run(scenario())


class Loop:
    """Time and one timer, moved by hand."""

    def __init__(self) -> None:
        self.now_s = 50.0
        self.turns = TurnClock()
        self.timer: tuple[float, Callable[[], None]] | None = None

    def time(self) -> float:
        return self.now_s

    def call_at(self, when: float, callback: Callable[[], None]) -> Any:
        self.timer = when, callback
        return SimpleNamespace(cancel=lambda: None)

    def pass_s(self, seconds: float, idle_share: float) -> None:
        until = self.now_s + seconds
        while self.timer is not None and self.timer[0] <= until:
            when, callback = self.timer
            self.turns.idle_s += (when - self.now_s) * idle_share
            self.now_s = when
            callback()
        self.turns.idle_s += (until - self.now_s) * idle_share
        self.now_s = until


def test_the_share_is_of_the_last_minute() -> None:
    loop = Loop()
    probe = LagProbe(cast(asyncio.AbstractEventLoop, loop))
    loop.turns.idle_s = 1000.0
    assert probe.recent_idle_share == 0
    probe.start()
    loop.pass_s(10, 0.25)
    assert probe.recent_idle_share == pytest.approx(0.25)
    loop.pass_s(200, 0.75)
    assert probe.recent_idle_share == pytest.approx(0.75)
    assert probe.idle_s == pytest.approx(1000 + 2.5 + 150)
    loop.pass_s(30, 0.0)
    assert probe.recent_idle_share == pytest.approx(0.375, abs=0.02)


def test_another_loop_tells_nothing() -> None:
    loop = Loop()
    del loop.turns
    probe = LagProbe(cast(asyncio.AbstractEventLoop, loop))
    probe.start()
    loop.now_s += 5
    assert (probe.idle_s, probe.recent_idle_share) == (0, 0)
