"""Runs the first step of a coroutine at once: one that never waits needs no task.

A task costs as much as a small request: two turns of the loop, a context, its callbacks. What a
leader without followers does for a request is over in the first step, as its high watermark rises
with each append. (Python 3.12 has eager tasks for this.)
"""

from __future__ import annotations

import types
from collections.abc import Awaitable, Coroutine, Generator
from typing import Any, Generic, NamedTuple, TypeVar, cast

T = TypeVar("T")


class Finished(NamedTuple, Generic[T]):
    """The result of a coroutine that did not wait."""

    value: T


def first_step(work: Coroutine[Any, Any, T]) -> Finished[T] | Awaitable[T]:
    """Run `work` until it waits for something: its result, or the rest of it to be awaited.

    Raises what `work` raises before it waits. There is no current task within the first step:
    what needs one (`asyncio.timeout`) awaits `asyncio.sleep(0)` before.
    """
    try:
        waited_for = work.send(None)
    except StopIteration as done:
        return Finished(done.value)
    return _rest(work, waited_for)


@types.coroutine
def _rest(work: Coroutine[Any, Any, T], waited_for: Any) -> Generator[Any, Any, T]:
    """Go on with `work`, which waits for a future that it has yielded."""
    while True:
        try:
            sent = yield waited_for
        except BaseException as error:  # noqa: BLE001 - a cancellation, too, is for `work`
            try:
                waited_for = work.throw(error)
            except StopIteration as done:
                return cast(T, done.value)
            continue
        try:
            waited_for = work.send(sent)
        except StopIteration as done:
            return cast(T, done.value)
