"""A consumer's work for its caller as steps: a generator that yields each wait.

The two faces of the SDK run the same steps. `ThreadSteps` blocks its thread at each one; the
`TaskSteps` of `headwater.client.aio` await it. Between two steps nothing waits, so that what a step
takes is returned whole.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, NamedTuple, TypeVar

from headwater.client.change_signal import ChangeSignal
from headwater.client.errors import OptionError
from headwater.client.loop_thread import LoopThread

T = TypeVar("T")


class Pause(NamedTuple):
    """Wait for a change of the subscription's state, for so long."""

    seen: int
    """`ChangeSignal.version` when the caller looked last: a later change ends the pause."""
    seconds: float


class OnCaller(NamedTuple):
    """Await this on the caller's own loop: what a listener returned."""

    work: Awaitable[Any]


class Whole(NamedTuple):
    """Run these steps to their end, even if the caller is cancelled meanwhile: half a rebalance
    would leave the consumer with partitions that are not its own."""

    steps: Steps[None]


Step = Coroutine[Any, Any, Any] | Pause | OnCaller | Whole
"""A coroutine runs on the engine's loop."""
Steps = Generator[Step, Any, T]


def call_listener(listener: Callable[[T], object] | None, value: T) -> Steps[None]:
    """Call a listener, which may be a coroutine function."""
    if listener is not None:
        outcome = listener(value)
        if inspect.isawaitable(outcome):
            yield OnCaller(outcome)


class ThreadSteps:
    """Runs steps on a thread that may block."""

    def __init__(self, thread: LoopThread, state: ChangeSignal) -> None:
        self._thread = thread
        self._state = state

    def run(self, steps: Steps[T], limit_s: float | None = None) -> T:
        """The result of the steps; each coroutine has `limit_s`."""
        value: Any = None
        error: BaseException | None = None
        try:
            while True:
                step = steps.send(value) if error is None else steps.throw(error)
                value = error = None
                try:
                    value = self._wait(step, limit_s)
                except BaseException as e:  # noqa: BLE001 - the steps see it first
                    error = e
        except StopIteration as end:
            result: T = end.value
            return result

    def _wait(self, step: Step, limit_s: float | None) -> Any:
        if isinstance(step, Pause):
            state = self._state
            with state.condition:
                if state.version == step.seen:
                    state.condition.wait(step.seconds)
            return None
        if isinstance(step, Whole):
            self.run(step.steps, limit_s)
            return None
        if isinstance(step, OnCaller):
            if inspect.iscoroutine(step.work):
                step.work.close()
            raise OptionError(
                "a listener is a coroutine function: give a plain one, or use AsyncConsumer"
            )
        return self._thread.call(step, limit_s)
