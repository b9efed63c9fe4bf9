"""The first step of a coroutine without a task: results, errors, the rest, cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from headwater_broker.runtime.first_step import Finished, first_step


async def at_once(value: int) -> int:
    return value


async def fails() -> int:
    raise ValueError("at once")


async def waits(on: Awaitable[int], seen: list[str]) -> int:
    try:
        return 1 + await on + await on
    except BaseException as error:
        seen.append(type(error).__name__)
        raise
    finally:
        await asyncio.sleep(0)
        seen.append("end")


def test_what_never_waits_is_finished_without_a_loop() -> None:
    assert first_step(at_once(3)) == Finished(3)
    with pytest.raises(ValueError, match="at once"):
        first_step(fails())


def test_the_rest_is_awaited() -> None:
    async def story() -> None:
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        seen: list[str] = []
        rest = first_step(waits(future, seen))
        assert not isinstance(rest, Finished)
        task = asyncio.ensure_future(rest)
        await asyncio.sleep(0)
        assert not task.done()
        future.set_result(20)
        assert await task == 41
        assert seen == ["end"]

    asyncio.run(story())


def test_an_error_of_the_awaited_future_arrives_inside() -> None:
    async def story() -> None:
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        seen: list[str] = []
        rest = first_step(waits(future, seen))
        assert not isinstance(rest, Finished)
        future.set_exception(KeyError("late"))
        with pytest.raises(KeyError):
            await rest
        assert seen == ["KeyError", "end"]

    asyncio.run(story())


def test_a_cancellation_arrives_inside() -> None:
    async def story() -> None:
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        seen: list[str] = []
        rest = first_step(waits(future, seen))
        assert not isinstance(rest, Finished)
        task = asyncio.ensure_future(rest)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert seen == ["CancelledError", "end"]
        assert future.cancelled()

    asyncio.run(story())


def test_a_timeout_works_behind_a_first_wait() -> None:
    async def work() -> str:
        await asyncio.sleep(0)
        try:
            async with asyncio.timeout(0):
                await asyncio.Event().wait()
        except TimeoutError:
            return "timed out"
        return "?"

    async def story() -> None:
        rest = first_step(work())
        assert not isinstance(rest, Finished)
        assert await asyncio.ensure_future(rest) == "timed out"

    asyncio.run(story())
