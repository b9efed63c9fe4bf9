"""The loop of a blocking client ends with every coroutine that it was given."""

from __future__ import annotations

import asyncio
import gc
import threading
import warnings
from collections.abc import Callable

import pytest

from headwater.client.errors import ClosedError
from headwater.client.loop_thread import LoopThread


def warned(work: Callable[[], object]) -> list[str]:
    """The warnings of `work`, those of coroutines that nobody awaited among them."""
    gc.collect()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        work()
        gc.collect()
    return [str(w.message) for w in caught]


begun: list[asyncio.Task[None]] = []


async def chain(depth: int) -> None:
    """A task that begins another one when it is cancelled, and so on."""
    try:
        await asyncio.Event().wait()
    finally:
        if depth:
            begun.append(asyncio.create_task(chain(depth - 1)))


def test_tasks_that_begin_while_the_loop_ends_are_ended_too() -> None:
    def work() -> None:
        host = LoopThread("ends")
        started = host.start(chain(20))
        host.call(asyncio.sleep(0))
        host.stop()
        assert started.cancelled()

    assert warned(work) == []


def test_a_coroutine_that_comes_after_the_end_is_closed() -> None:
    def work() -> None:
        host = LoopThread("ended")
        host.stop()
        with pytest.raises(ClosedError, match="the client is closed"):
            host.start(asyncio.sleep(0))
        with pytest.raises(ClosedError, match="the client is closed"):
            host.call(asyncio.sleep(0))

    assert warned(work) == []


def test_what_was_handed_over_with_the_stop_gets_an_answer() -> None:
    def work() -> None:
        host = LoopThread("stops")
        gate = threading.Event()
        host.post(gate.wait)
        host.loop.call_soon_threadsafe(host.loop.stop)
        late = [host.start(chain(0)) for _ in range(5)]
        gate.set()
        host.stop()
        assert all(future.cancelled() for future in late)

    assert warned(work) == []
