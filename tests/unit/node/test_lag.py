"""The loop's measures: a turn that holds the loop is seen, what came before `start` is not."""

from __future__ import annotations

import asyncio
import selectors
import socket
import time
from collections.abc import Callable

import pytest

from headwater_broker.node.lag import (
    PROBE_S,
    LagProbe,
    Maxima,
    MeasuredLoop,
    RunQueue,
    TurnClock,
    own_seconds,
)

HELD_S = 0.03


def hold() -> None:
    """Compute, so that no run-queue delay explains it away."""
    until = time.thread_time() + HELD_S
    while time.thread_time() < until:
        pass


def test_a_long_turn_is_the_loops_own(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> tuple[float, float, int]:
        probe = LagProbe(asyncio.get_running_loop())
        hold()
        await asyncio.sleep(0)
        probe.start()
        before = probe.longest_turn_s
        await asyncio.sleep(0.02)
        asyncio.get_running_loop().call_soon(hold)
        await asyncio.sleep(PROBE_S * 2)
        probe.stop()
        assert probe.recent_turn_s == probe.longest_turn_s
        assert probe.worst_s > 0
        return before, probe.longest_turn_s, probe.late_total

    with asyncio.Runner(loop_factory=MeasuredLoop) as runner:
        before, longest, late = runner.run(scenario())
    assert before == 0
    assert longest >= HELD_S
    assert late >= 1
    told = [r.getMessage() for r in caplog.records if "a turn of the event loop" in r.getMessage()]
    assert len(told) >= late
    assert any("ms of CPU time" in text for text in told)


def test_on_another_loop_only_timers_are_measured() -> None:
    async def scenario() -> LagProbe:
        probe = LagProbe(asyncio.get_running_loop())
        probe.start()
        await asyncio.sleep(PROBE_S * 2)
        probe.stop()
        assert probe.worst_s > 0
        return probe

    probe = asyncio.run(scenario())
    assert (probe.recent_turn_s, probe.longest_turn_s, probe.late_total) == (0, 0, 0)


def test_only_the_last_minute_is_recent() -> None:
    maxima = Maxima()
    maxima.add(100.0, 5.0)
    maxima.add(100.5, 3.0)
    maxima.add(130.0, 1.0)
    assert (maxima.recent(131), maxima.recent(170), maxima.recent(300)) == (5.0, 1.0, 0)
    assert maxima.worst == 5.0


def test_a_turn_is_charged_with_what_the_loop_did() -> None:
    # (held, cpu, run-queue delay, sleeps) -> own
    assert own_seconds(0.060, 0.003, 0.0, 0) == 0.003  # a hypervisor had the core
    assert own_seconds(0.060, 0.003, 0.0, 1) == 0.060  # a disk, or the interpreter's lock
    assert own_seconds(0.060, 0.003, 0.050, 2) == 0.060 - 0.050
    assert own_seconds(0.030, 0.030, 0.0, 0) == 0.030
    assert own_seconds(0.030, 0.029, 0.010, 1) == 0.029  # the two clocks differ a little


def test_sleeping_in_a_turn_is_the_loops_own(monkeypatch: pytest.MonkeyPatch) -> None:
    # On a busy machine the delay before this turn would be taken off it, too.
    monkeypatch.setattr(RunQueue, "waited_s", lambda _: 0.0)

    async def scenario() -> float:
        probe = LagProbe(asyncio.get_running_loop())
        probe.start()
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_soon(time.sleep, HELD_S)
        await asyncio.sleep(HELD_S * 2)
        probe.stop()
        return probe.longest_turn_s

    with asyncio.Runner(loop_factory=MeasuredLoop) as runner:
        assert runner.run(scenario()) >= HELD_S * 0.9


def test_what_is_called_at_the_end_of_a_turn_comes_last_and_costs_no_turn_of_its_own() -> None:
    async def scenario() -> list[str]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, MeasuredLoop)
        turns: list[str] = []
        told: asyncio.Future[None] = loop.create_future()

        def end() -> None:
            turns.append("end")
            loop.call_soon(turns.append, "next")
            loop.call_soon(told.set_result, None)

        loop.at_turn_end(end)
        loop.call_soon(turns.append, "next, too")
        turns.append("this")
        await asyncio.wait_for(told, 30)  # it would wait for a timer, were the end not looked at
        started = loop.time()
        selects: list[float] = []
        select = loop.clock.select
        loop.clock.select = lambda timeout: selects.append(timeout) or select(timeout)  # type: ignore
        loop.at_turn_end(lambda: turns.append("idle"))
        await asyncio.sleep(0.01)
        loop.clock.select = select  # type: ignore[method-assign]
        assert loop.time() - started >= 0.009
        assert selects[0] > 0
        return turns

    with asyncio.Runner(loop_factory=MeasuredLoop) as runner:
        assert runner.run(scenario()) == ["this", "end", "next, too", "next", "idle"]


def test_an_end_that_fails_or_begins_another_turn_leaves_nobody_waiting(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail() -> None:
        raise ValueError("planted")

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, MeasuredLoop)
        told: asyncio.Future[None] = loop.create_future()
        loop.at_turn_end(fail)
        loop.at_turn_end(lambda: loop.at_turn_end(lambda: told.set_result(None)))
        timer = loop.call_later(30, told.cancel)  # the loop would sleep until then
        await told
        timer.cancel()

    with asyncio.Runner(loop_factory=MeasuredLoop) as runner:
        runner.run(scenario())
    assert "the end of a turn failed" in caplog.text


def test_the_selector_tells_what_the_standard_one_tells() -> None:
    clock, near, far = TurnClock(), *socket.socketpair()
    try:
        near.setblocking(False)
        clock.register(near, selectors.EVENT_READ, "in")
        assert clock.select(0) == clock.select(-1) == clock.select(0.001) == []
        steps: tuple[Callable[[], object], ...] = (
            lambda: clock.modify(near, selectors.EVENT_READ | selectors.EVENT_WRITE, "both"),
            lambda: far.send(b"x"),
            lambda: clock.modify(near, selectors.EVENT_READ, "in"),
            far.close,  # a hang-up
            lambda: clock.modify(near, selectors.EVENT_WRITE, "out"),
        )
        for step in steps:
            step()
            found = clock.select(None)
            assert found == selectors.DefaultSelector.select(clock, None) != []
        clock.unregister(near)
        assert clock.select(0) == []
    finally:
        near.close()
        far.close()
        clock.close()
