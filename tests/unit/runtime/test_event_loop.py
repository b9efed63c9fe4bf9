"""The broker's loop behaves as asyncio's, and runs callbacks at the end of a turn."""

from __future__ import annotations

import asyncio
import os
import selectors
import socket
import threading
from collections.abc import Callable, Coroutine, Sequence
from random import Random
from typing import Any, cast

import pytest

from headwater_broker.runtime import event_loop
from headwater_broker.runtime.event_loop import SCHEDULED_MIN, MeasuredLoop


class Silent(selectors.DefaultSelector):  # type: ignore[misc,valid-type]
    """Finds no event, and does not wait for one."""

    def select(self, _timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        return []


Scenario = Callable[[], Coroutine[Any, Any, list[str]]]


def unknown_asyncio() -> MeasuredLoop:
    """As with a Python whose asyncio is built otherwise."""
    return MeasuredLoop(runs_own_turn=False)


def without_epoll() -> MeasuredLoop:
    """As where another selector is the default."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(selectors, "DefaultSelector", selectors.PollSelector)
        return MeasuredLoop()


def with_debug() -> MeasuredLoop:
    """As with PYTHONASYNCIODEBUG."""
    loop = MeasuredLoop()
    loop.set_debug(True)
    return loop


LOOPS = (asyncio.SelectorEventLoop, MeasuredLoop, unknown_asyncio, without_epoll, with_debug)


async def in_order() -> list[str]:
    """What a turn adds is for the next one; timers come after what is ready."""
    loop, seen = asyncio.get_running_loop(), list[str]()
    done = loop.create_future()

    def first() -> None:
        seen.append("first")
        loop.call_soon(seen.append, "added")
        loop.call_later(0, seen.append, "timer")
        loop.call_later(0.02, seen.append, "later")
        loop.call_at(loop.time() + 0.01, seen.append, "sooner")
        loop.call_later(0.04, done.set_result, None)

    loop.call_soon(first)
    loop.call_soon(seen.append, "second")
    gone = loop.call_soon(seen.append, "cancelled")
    gone.cancel()
    await done
    return seen


async def sockets() -> list[str]:
    """Bytes, room, a hang-up; a reader that another handle of the same turn takes away."""
    loop, seen = asyncio.get_running_loop(), list[str]()
    near, far = socket.socketpair()
    other, its = socket.socketpair()
    for one in (near, far, other, its):
        one.setblocking(False)

    def read(one: socket.socket, that: socket.socket) -> None:
        seen.append("read " + one.recv(10).decode())
        loop.remove_reader(that)

    loop.add_reader(near, read, near, other)
    loop.add_reader(other, read, other, near)
    far.send(b"x")
    its.send(b"x")
    await asyncio.sleep(0.01)
    seen.append("one")  # which one, the kernel says
    loop.remove_reader(near)
    loop.remove_reader(other)
    room = loop.create_future()
    loop.add_writer(near, lambda: room.done() or room.set_result("room"))
    loop.add_reader(near, lambda: seen.append("not this"))
    loop.remove_reader(near)
    seen.append(await room)
    loop.remove_writer(near)
    near.recv(10) if "read x" not in seen else None
    gone = loop.create_future()
    loop.add_reader(near, lambda: gone.done() or gone.set_result("hang-up"))
    far.close()
    seen.append(await asyncio.wait_for(gone, 30))
    loop.remove_reader(near)
    for one in (near, other, its):
        one.close()
    return seen


async def streams() -> list[str]:
    """Transports both ways, more than a socket's buffer holds."""
    got: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        data = await reader.readexactly(3_000_000)
        got.append(len(data))
        writer.write(data)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(bytes(3_000_000))
    back = await asyncio.wait_for(reader.read(-1), 30)
    writer.close()
    server.close()
    await server.wait_closed()
    return [f"{got[0]}", f"{len(back)}"]


async def threads() -> list[str]:
    """Another thread wakes a loop that has nothing to do."""
    loop, told = asyncio.get_running_loop(), asyncio.Event()
    threading.Timer(0.02, loop.call_soon_threadsafe, (told.set,)).start()
    await asyncio.wait_for(told.wait(), 30)
    return [await asyncio.to_thread(lambda: "from a thread")]


async def cancelled_timers() -> list[str]:
    """They do not pile up, and none is called."""
    loop, seen = asyncio.get_running_loop(), list[str]()
    for _ in range(20):
        timers = [loop.call_later(60, seen.append, "never") for _ in range(SCHEDULED_MIN)]
        kept = loop.call_later(0.005, seen.append, "kept")
        for timer in timers:
            timer.cancel()
            timer.cancel()
        await asyncio.sleep(0.01)
        assert not kept.cancelled()
    assert len(vars(loop)["_scheduled"]) <= 2 * SCHEDULED_MIN
    assert 0 <= vars(loop)["_timer_cancelled_count"] <= len(vars(loop)["_scheduled"])
    return seen


async def failing() -> list[str]:
    """A handle that fails is told of; the loop goes on."""
    loop, seen = asyncio.get_running_loop(), list[str]()
    loop.set_exception_handler(lambda _loop, context: seen.append(repr(context["exception"])))
    loop.call_soon(lambda: int("planted"))
    loop.call_soon(seen.append, "goes on")
    await asyncio.sleep(0.001)
    return seen


@pytest.mark.parametrize(
    "scenario", [in_order, sockets, streams, threads, cancelled_timers, failing],
    ids=lambda scenario: scenario.__name__,
)  # fmt: skip
def test_the_loop_does_what_asyncios_does(scenario: Scenario) -> None:
    found = []
    for make in LOOPS:
        with asyncio.Runner(loop_factory=make) as runner:
            found.append(runner.run(asyncio.wait_for(scenario(), 60)))
    assert all(seen == found[0] for seen in found[1:]), found
    assert found[0]


@pytest.mark.parametrize("seed", range(40))
def test_timers_are_asyncios_to_the_flag(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """On virtual time: what is called, and what the loop keeps of timers, cancelled ones too."""

    def drive(make: Callable[[], asyncio.BaseEventLoop]) -> list[object]:
        random, loop, seen = Random(seed), cast(Any, make()), list[object]()
        now = 0.0
        monkeypatch.setattr(event_loop, "monotonic", lambda: now)
        loop.time = lambda: now
        loop.poll = lambda _timeout, _maxevents: []
        loop.set_exception_handler(lambda _loop, context: seen.append(context))
        timers: list[asyncio.TimerHandle] = []
        for _ in range(150):
            for _ in range(random.randrange(8)):
                after = random.choice((0, 0.5, 1, 5, 50, 100))
                timers.append(loop.call_at(now + after, seen.append, len(timers)))
            for _ in range(random.randrange(9) if timers else 0):
                random.choice(timers).cancel()
            now += random.choice((0, 0, 0.1, 1))
            loop.call_soon(loop.stop)
            loop.run_forever()  # one turn
            flags = sum(cast(Any, timer)._scheduled for timer in timers)
            seen.append((len(loop._scheduled), loop._timer_cancelled_count, flags))
        loop.close()
        return seen

    assert drive(MeasuredLoop) == drive(lambda: asyncio.SelectorEventLoop(Silent()))


@pytest.mark.parametrize("make", LOOPS)
def test_a_reader_that_was_cancelled_is_taken_away(
    make: Callable[[], asyncio.SelectorEventLoop],
) -> None:
    loop = make()
    near, far = socket.socketpair()
    near.setblocking(False)
    loop.add_reader(near, lambda: None)
    keys = vars(loop)["_selector"].get_map()
    reader, _ = keys[near.fileno()].data
    reader.cancel()
    far.send(b"x")
    loop.call_later(0.02, loop.stop)
    loop.run_forever()
    assert near.fileno() not in keys
    near.close()
    far.close()
    loop.close()


@pytest.mark.parametrize("make", LOOPS)
def test_a_pipe_without_a_writer_is_readable(
    make: Callable[[], asyncio.SelectorEventLoop],
) -> None:
    """epoll tells a hang-up and nothing else."""
    loop, (near, far) = make(), os.pipe()
    told = list[bytes]()

    def read() -> None:
        told.append(os.read(near, 1))
        loop.remove_reader(near)
        loop.stop()

    loop.add_reader(near, read)
    os.close(far)
    timer = loop.call_later(30, loop.stop)
    loop.run_forever()
    timer.cancel()
    assert told == [b""]
    os.close(near)
    loop.close()


@pytest.mark.parametrize("make", LOOPS)
def test_a_loop_that_was_stopped_before_it_runs_ends_at_once(
    make: Callable[[], asyncio.SelectorEventLoop],
) -> None:
    loop = make()
    timer = loop.call_later(30, int)
    loop.stop()
    started = loop.time()
    loop.run_forever()
    assert loop.time() - started < 10
    timer.cancel()
    loop.close()


def test_a_loop_gives_its_descriptors_back_and_not_before_it_may_be_closed() -> None:
    before = len(os.listdir("/proc/self/fd"))
    loop = MeasuredLoop()
    loop.turns.reset()

    def close() -> None:
        held = len(os.listdir("/proc/self/fd"))
        with pytest.raises(RuntimeError):
            loop.close()
        assert len(os.listdir("/proc/self/fd")) == held
        loop.stop()

    loop.call_soon(close)
    loop.run_forever()
    assert len(os.listdir("/proc/self/fd")) > before
    loop.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_with_this_python_the_loop_runs_its_own_turn() -> None:
    loop = MeasuredLoop()
    assert loop.runs_own_turn
    assert loop.poll.__name__ == "poll"
    loop.close()


@pytest.mark.parametrize("make", LOOPS[1:])
def test_what_is_called_at_the_end_of_a_turn_comes_last_and_costs_no_turn_of_its_own(
    make: Callable[[], MeasuredLoop],
) -> None:
    async def scenario() -> list[str]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, MeasuredLoop)
        turns: list[str] = []
        told: asyncio.Future[None] = loop.create_future()

        def end() -> None:
            turns.append("end")
            loop.call_soon(turns.append, "next")
            loop.call_soon(told.set_result, None)

        loop.turns.at_end(end)
        loop.call_soon(turns.append, "next, too")
        turns.append("this")
        await asyncio.wait_for(told, 30)  # it would wait for a timer, were the end not looked at
        number = loop.turns.number
        loop.turns.at_end(lambda: turns.append("idle"))
        await asyncio.sleep(0.05)
        assert loop.turns.number <= number + 2  # this one, and that of the timer
        return turns

    with asyncio.Runner(loop_factory=make) as runner:
        assert runner.run(scenario()) == ["this", "end", "next, too", "next", "idle"]


@pytest.mark.parametrize("make", LOOPS[1:])
def test_an_end_that_fails_or_begins_another_turn_leaves_nobody_waiting(
    caplog: pytest.LogCaptureFixture, make: Callable[[], MeasuredLoop]
) -> None:
    def fail() -> None:
        raise ValueError("planted")

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, MeasuredLoop)
        told: asyncio.Future[None] = loop.create_future()
        loop.turns.at_end(fail)
        loop.turns.at_end(lambda: loop.turns.at_end(lambda: told.set_result(None)))
        timer = loop.call_later(30, told.cancel)  # the loop would sleep until then
        await told
        timer.cancel()

    with asyncio.Runner(loop_factory=make) as runner:
        runner.run(scenario())
    assert "the end of a turn failed" in caplog.text


def test_a_turn_knows_when_the_one_before_it_ended() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, MeasuredLoop)
        turns, before = loop.turns, loop.time()
        told: asyncio.Future[tuple[float, float, int]] = loop.create_future()

        def look() -> None:
            told.set_result((turns.ended_s, turns.began_s, turns.number))

        loop.call_later(0.02, look)
        ended, began, number = await told
        assert before <= ended <= began - 0.015 <= began <= loop.time()
        assert turns.number == number + 1

    with asyncio.Runner(loop_factory=MeasuredLoop) as runner:
        runner.run(scenario())


def test_a_day_is_the_longest_wait() -> None:
    waits: list[float] = []

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, MeasuredLoop)
        poll = loop.poll

        def note(timeout: float, maxevents: int, /) -> Sequence[tuple[int, int]]:
            waits.append(timeout)
            return poll(min(timeout, 0.01), maxevents)

        loop.poll = note
        timer = loop.call_later(1e9, waits.clear)
        told = asyncio.Event()
        threading.Timer(0.02, loop.call_soon_threadsafe, (told.set,)).start()
        await told.wait()
        timer.cancel()

    with asyncio.Runner(loop_factory=MeasuredLoop) as runner:
        runner.run(scenario())
    assert max(waits) == event_loop.SELECT_MAX_S
