"""The host of a client's engine: a thread of its own, or the caller's asyncio loop.

The engine is the same coroutines in both cases: connections, metadata, batches, fetches,
heartbeats. The blocking clients have a `LoopThread`, those of `headwater.aio` a `CallerLoop`; with
`engine="thread"` a `RemoteLoop`, so that a caller that keeps its loop busy starves no heartbeat.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Literal, Protocol, TypeVar

from headwater.client.errors import IllegalStateError
from headwater.client.loop_thread import LoopThread
from headwater.errors import UsageError

EngineName = Literal["loop", "thread"]
"""The option `engine`: the caller's loop, or a thread of the client's own."""
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Started(Protocol[T_co]):
    """A coroutine that runs on the engine's loop: a Task, or a future of another thread's."""

    def done(self) -> bool:
        """True once it has ended."""
        ...

    def result(self) -> T_co:
        """Its result once it is done; raises its error."""
        ...

    def cancel(self) -> bool:
        """Ask it to end."""
        ...

    def add_done_callback(self, fn: Callable[[Any], object], /) -> None:
        """Call `fn` when it ends."""
        ...


class EngineHost(Protocol):
    """What the engine's parts need of the place where they run."""

    @property
    def is_current(self) -> bool:
        """True when the calling code keeps the engine from running: it is on the engine's own
        thread and not the caller's."""
        ...

    def post(self, callback: Callable[[], object]) -> None:
        """Call `callback` soon on the engine's loop. The caller's code uses it."""
        ...

    def start(self, work: Coroutine[Any, Any, T]) -> Started[T]:
        """Run a coroutine on the engine's loop."""
        ...

    def deliver(self, callback: Callable[[], object]) -> None:
        """Call `callback` where callers wait. The engine uses it."""
        ...


class AsyncHost(EngineHost, Protocol):
    """The host of an asyncio client: its callers await."""

    @property
    def callers(self) -> asyncio.AbstractEventLoop:
        """The loop on which callers wait."""
        ...

    def bind(self) -> None:
        """The callers are on the loop that runs now. Nothing else works before."""
        ...

    async def call(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine that runs on the engine's loop."""
        ...

    async def stop(self) -> None:
        """The client is closed."""
        ...


class _Bound:
    """The loop of the callers, once it is known."""

    def __init__(self) -> None:
        self._callers: asyncio.AbstractEventLoop | None = None

    @property
    def callers(self) -> asyncio.AbstractEventLoop:
        """See AsyncHost. Raises IllegalStateError before `bind`."""
        if self._callers is None:
            raise IllegalStateError("the client is not started: use `async with`, or await start()")
        return self._callers


class CallerLoop(_Bound):
    """The engine on the caller's own loop: no hop between threads, and no lock is waited for."""

    is_current = False

    def __init__(self) -> None:
        super().__init__()
        self._tasks: set[asyncio.Task[Any]] = set()

    def bind(self) -> None:
        """See AsyncHost."""
        self._callers = asyncio.get_running_loop()

    def post(self, callback: Callable[[], object]) -> None:
        """See EngineHost."""
        self.callers.call_soon(callback)

    def start(self, work: Coroutine[Any, Any, T]) -> Started[T]:
        """See EngineHost."""
        task = self.callers.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def deliver(self, callback: Callable[[], object]) -> None:
        """See EngineHost."""
        callback()

    async def call(self, work: Coroutine[Any, Any, T]) -> T:
        """See AsyncHost."""
        return await work

    async def stop(self) -> None:
        """See AsyncHost."""
        for task in self._tasks:
            task.cancel()


class RemoteLoop(_Bound):
    """The engine on a thread of its own: it goes on while the callers' loop is busy."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name
        self._started: LoopThread | None = None

    def bind(self) -> None:
        """See AsyncHost."""
        self._callers = asyncio.get_running_loop()
        self._started = LoopThread(self._name)

    @property
    def _thread(self) -> LoopThread:
        if self._started is None:
            raise IllegalStateError("the client is not started: use `async with`, or await start()")
        return self._started

    @property
    def is_current(self) -> bool:
        """See EngineHost."""
        return self._thread.is_current

    def post(self, callback: Callable[[], object]) -> None:
        """See EngineHost."""
        self._thread.post(callback)

    def start(self, work: Coroutine[Any, Any, T]) -> Started[T]:
        """See EngineHost."""
        return self._thread.start(work)

    def deliver(self, callback: Callable[[], object]) -> None:
        """See EngineHost."""
        if not self.callers.is_closed():
            self.callers.call_soon_threadsafe(callback)

    async def call(self, work: Coroutine[Any, Any, T]) -> T:
        """See AsyncHost."""
        return await self._thread.awaited(work)

    async def stop(self) -> None:
        """See AsyncHost."""
        await asyncio.to_thread(self._thread.stop)


def host_of(engine: Any, name: str) -> AsyncHost:
    """The host that the option `engine` names. Raises UsageError."""
    if engine == "loop":
        return CallerLoop()
    if engine == "thread":
        return RemoteLoop(name)
    raise UsageError(f"engine is {engine!r}: give one of 'loop', 'thread'")
