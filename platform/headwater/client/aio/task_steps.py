"""Runs a consumer's steps (`headwater.client.steps`) in asyncio tasks."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

from headwater.client.change_signal import ChangeSignal
from headwater.client.engine_host import AsyncHost
from headwater.client.steps import OnCaller, Pause, Step, Steps, Whole

T = TypeVar("T")


class TaskSteps:
    """Awaits each step: coroutines on the engine's loop, changes on the caller's."""

    def __init__(self, host: AsyncHost, state: ChangeSignal) -> None:
        self._host = host
        self._state = state
        self._changes = asyncio.Event()
        state.on_change = lambda: host.deliver(self._changes.set)
        self._whole: asyncio.Task[None] | None = None
        """What is run to its end, whoever waits for it."""

    async def run(self, steps: Steps[T]) -> T:
        """The result of the steps. After the last step nothing is awaited any more."""
        value: Any = None
        error: BaseException | None = None
        try:
            while True:
                step = steps.send(value) if error is None else steps.throw(error)
                value = error = None
                try:
                    value = await self._wait(step)
                except BaseException as e:  # noqa: BLE001 - the steps see it first
                    error = e
        except StopIteration as end:
            result: T = end.value
            return result

    async def _wait(self, step: Step) -> Any:
        if isinstance(step, Pause):
            self._changes.clear()
            if self._state.version == step.seen:
                await self._pause(step.seconds)
            return None
        if isinstance(step, OnCaller):
            return await step.work
        if isinstance(step, Whole):
            if self.is_inside:  # a listener's call is a part of what runs
                await self.run(step.steps)
                return None
            while self._whole is not None:
                await self.settle()
            self._whole = asyncio.create_task(self.run(step.steps))
            await self.settle()
            return None
        return await self._host.call(step)

    @property
    def is_inside(self) -> bool:
        """True in a listener: what calls it waits for it."""
        return self._whole is not None and asyncio.current_task() is self._whole

    async def settle(self) -> None:
        """Wait for a rebalance that an earlier caller began and did not see the end of."""
        task = self._whole
        if task is not None:
            await asyncio.wait([task])
            if self._whole is task:  # another caller may have begun the next one
                self._whole = None
            task.result()

    async def _pause(self, seconds: float) -> None:
        """Wait for a change. `asyncio.wait_for` would make a task each time."""
        try:
            async with asyncio.timeout(seconds):
                await self._changes.wait()
        except TimeoutError:
            pass  # the steps look at the clock
