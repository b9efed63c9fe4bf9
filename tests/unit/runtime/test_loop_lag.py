"""The loop's measures: turns that hold the loop count, turns before `start` do not."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Sequence
from functools import partial

import pytest

from headwater_broker.runtime.event_loop import MeasuredLoop, Poll
from headwater_broker.runtime.loop_lag import (
    PROBE_S,
    SLEPT_S,
    LagProbe,
    Maxima,
    RunQueue,
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


@pytest.mark.parametrize("waits", [False, True])
def test_a_sleep_before_a_turn_is_not_a_wait_of_the_turn(
    waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without one only CPU time counts: a hypervisor had the core for the rest."""
    monkeypatch.setattr(RunQueue, "waited_s", lambda _: 0.0)

    async def scenario() -> float:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, MeasuredLoop)
        probe = LagProbe(loop)
        probe.start()
        await asyncio.sleep(0.01)
        loop.turns.sample()
        for _ in range(3):  # sleeps that the last look does not know of
            loop.turns.fresh_until = loop.time() + 60
            await asyncio.sleep(0.002)

        def turn() -> None:
            loop.turns.began_s -= 50.0  # nothing was done in that time
            if waits:
                time.sleep(0.001)

        loop.call_later(0.002, turn)
        await asyncio.sleep(0.01)
        probe.stop()
        return probe.longest_turn_s

    with asyncio.Runner(loop_factory=MeasuredLoop) as runner:
        assert (runner.run(scenario()) > 49.0) == waits


@pytest.mark.parametrize(
    ("sockets", "preempted"), [(1, False), (1, True), (30, False), (150, False)]
)
def test_a_wait_in_a_turn_is_seen_behind_a_slow_selector(
    sockets: int, preempted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many events, or a core that was taken, make it last as long as a sleep does."""
    monkeypatch.setattr(RunQueue, "waited_s", lambda _: 0.0)

    def slowly(poll: Poll, timeout: float, maxevents: int) -> Sequence[tuple[int, int]]:
        found = poll(timeout, maxevents)
        until = time.monotonic() + SLEPT_S * 20
        while time.monotonic() < until:
            pass
        return found

    def wait(loop: asyncio.AbstractEventLoop, near: socket.socket) -> None:
        loop.remove_reader(near)
        time.sleep(HELD_S / 3)

    async def scenario() -> list[float]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, MeasuredLoop)
        if preempted:
            loop.poll = partial(slowly, loop.poll)
        probe = LagProbe(loop)
        pairs = [socket.socketpair() for _ in range(sockets)]
        found = []
        for _ in range(15):
            probe.start()
            for near, far in pairs:
                loop.add_reader(near, loop.remove_reader, near)
                far.send(b"x")
            near, _ = pairs[0]
            loop.add_reader(near, wait, loop, near)
            await asyncio.sleep(HELD_S)  # the selector may sleep so long, and has no need to
            probe.stop()
            found.append(probe.longest_turn_s)
        for near, far in pairs:
            near.close()
            far.close()
        return found

    with asyncio.Runner(loop_factory=MeasuredLoop) as runner:
        found = runner.run(scenario())
    assert all(turn >= HELD_S / 3 * 0.9 for turn in found), found


def test_a_turn_of_unknown_length_has_none() -> None:
    """In debug mode asyncio's own turns run."""

    async def scenario() -> float:
        loop = asyncio.get_running_loop()
        probe = LagProbe(loop)
        probe.start()
        await asyncio.sleep(0.01)
        loop.set_debug(True)
        await asyncio.sleep(0.1)
        loop.set_debug(False)
        await asyncio.sleep(0.01)
        probe.stop()
        return probe.longest_turn_s

    with asyncio.Runner(loop_factory=MeasuredLoop) as runner:
        assert runner.run(scenario()) < 0.05


def test_a_turn_after_a_long_rest_is_charged_with_its_own_cpu_time_only() -> None:
    async def scenario() -> float:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, MeasuredLoop)
        probe = LagProbe(loop)
        hold()
        probe.start()
        hold()  # within this turn: counted, and reset below
        await asyncio.sleep(0.005)
        loop.turns.reset()
        await asyncio.sleep(0.005)
        until = time.thread_time() + 0.006
        while time.thread_time() < until:
            pass
        await asyncio.sleep(0)
        probe.stop()
        return probe.longest_turn_s

    with asyncio.Runner(loop_factory=MeasuredLoop) as runner:
        assert 0.005 <= runner.run(scenario()) < HELD_S


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
