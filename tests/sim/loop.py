"""Virtual time: one scheduler for the whole world, and one asyncio loop per simulated process.

Every broker and client has a `ProcessLoop` of its own, so that a kill is exact: no further callback
of it runs, whatever its tasks await. Callbacks of one loop keep asyncio's order. Loops take turns,
each a seeded moment after it has work, so any interleaving of processes can occur. Nothing really
waits: the clock jumps to the next event.
"""

from __future__ import annotations

import asyncio
import heapq
from asyncio.events import _get_running_loop as get_running_loop
from asyncio.events import _set_running_loop as set_running_loop
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future
from random import Random
from typing import Any, TypeVar
from weakref import WeakSet

T = TypeVar("T")

TURN_DELAY_MAX_S = 0.0002
"""How long a loop with work may wait for its turn, as processes share a machine."""
THREAD_DELAY_MAX_S = 0.01
"""How long a job waits for a thread, and its result for the loop."""


class KilledError(BaseException):
    """The process is dead: none of its code runs on, not even in `except Exception`."""


class Scheduler:
    """Events in the order of virtual time; events at the same time in the order of arrival."""

    def __init__(self, random: Random) -> None:
        self.now = 0.0
        self.events = 0
        self.digest = 0
        """Hash over all events and their times: two runs of a seed must have the same."""
        self.random = random
        self.after_event: Callable[[ProcessLoop], None] = lambda loop: None
        self._heap: list[tuple[float, int, ProcessLoop | None, Any]] = []
        self._count = 0

    def at(self, when: float, work: Callable[[], None]) -> None:
        """Run `work` at that time, outside of any process: network, disks, faults."""
        self._count += 1
        heapq.heappush(self._heap, (when, self._count, None, work))

    def later(self, delay_s: float, work: Callable[[], None]) -> None:
        """Run `work` after `delay_s`."""
        self.at(self.now + delay_s, work)

    def timer(self, loop: ProcessLoop, handle: asyncio.TimerHandle) -> None:
        """Schedule a timer of a process."""
        self._count += 1
        heapq.heappush(self._heap, (handle.when(), self._count, loop, handle))

    def run_until(self, when: float, stop: Callable[[], bool] = lambda: False) -> None:
        """Run events up to `when`, or until `stop()` is true, which is called after every turn."""
        heap = self._heap
        while heap and heap[0][0] <= when and not stop():
            due, _, loop, work = heapq.heappop(heap)
            if due > self.now:
                self.now = due
            if loop is None:
                self.events += 1
                work()
            elif not work.cancelled():
                loop.ready(work)
        if not stop():
            self.now = max(self.now, when)


class ProcessLoop(asyncio.AbstractEventLoop):
    """The loop of one process: its ready callbacks, timers, threads and open tasks."""

    def __init__(self, scheduler: Scheduler, name: str, number: int) -> None:
        self.name = name
        self.is_dead = False
        self.paused_until = 0.0
        self.kill_after: int | None = None
        """The process is killed after so many more events."""
        self.on_kill: Callable[[], None] = lambda: None
        self.on_exception: Callable[[dict[str, Any]], None] = lambda context: None
        self.network: Any = None
        self.host = ""
        self._number = number
        self._scheduler = scheduler
        self._ready: deque[asyncio.Handle] = deque()
        self._turn_due = False
        self._tasks: WeakSet[asyncio.Task[Any]] = WeakSet()
        self._grave: list[Any] = []
        self._executor = ThreadDouble(self)

    # -- for asyncio

    def time(self) -> float:
        """Virtual seconds."""
        return self._scheduler.now

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self.ready(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self, delay: float, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._scheduler.now + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        if not self.is_dead:
            self._scheduler.timer(self, handle)
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        return

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self, coro: Coroutine[Any, Any, T], *, name: str | None = None, context: Any = None
    ) -> asyncio.Task[T]:
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        self._tasks.add(task)
        return task

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> asyncio.Future[Any]:
        chosen = executor or self._executor
        return asyncio.wrap_future(chosen.submit(func, *args), loop=self)

    async def create_connection(self, factory: Any, host: Any, port: Any, **_: Any) -> Any:
        return await self.network.connect(self, factory, host, port)

    async def create_server(self, factory: Any, host: Any, port: Any, **_: Any) -> Any:
        return self.network.listen(self, factory, port)

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return not self.is_dead

    def is_closed(self) -> bool:
        return self.is_dead

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self.is_dead:
            self.on_exception(context)

    default_exception_handler = call_exception_handler

    # -- for the world

    def ready(self, handle: asyncio.Handle) -> None:
        """Queue a callback for one of the next turns."""
        if self.is_dead:
            return
        self._ready.append(handle)
        if not self._turn_due:
            self._turn_due = True
            scheduler = self._scheduler
            when = scheduler.now + scheduler.random.random() * TURN_DELAY_MAX_S
            scheduler.at(max(when, self.paused_until), self._turn)

    def pause(self, seconds: float) -> None:
        """Stop the process for a while (SIGSTOP, a swapping machine): its turns wait."""
        self.paused_until = max(self.paused_until, self._scheduler.now + seconds)

    def _turn(self) -> None:
        """Run the callbacks that are ready now, as asyncio does; each is an event."""
        scheduler = self._scheduler
        if self.is_dead:
            return
        if self.paused_until > scheduler.now:
            scheduler.at(self.paused_until, self._turn)
            return
        ready, after = self._ready, scheduler.after_event
        scheduler.digest = hash((scheduler.digest, self._number, scheduler.now, len(ready)))
        set_running_loop(self)
        try:
            for _ in range(len(ready)):
                handle = ready.popleft()
                if handle.cancelled():
                    continue
                scheduler.events += 1
                handle._run()
                after(self)
                if self.kill_after is not None:
                    self.kill_after -= 1
                    if self.kill_after < 0 and not self.is_dead:
                        self.on_kill()
                if self.is_dead:
                    return
        finally:
            set_running_loop(None)
        self._turn_due = False
        if ready:
            self._turn_due = True
            scheduler.later(scheduler.random.random() * TURN_DELAY_MAX_S, self._turn)

    def kill(self) -> None:
        """Kill the process: no more of its code runs. Its frames are kept, as their collection
        would run their `finally` blocks, which does not happen in a killed process."""
        self.is_dead = True
        self._grave = [list(self._ready), list(self._tasks)]
        self._ready.clear()


class ThreadDouble(Executor):
    """The threads of a process: each job runs as a whole, some time later, between two turns.

    Jobs run in the order of submission, which is a possible order for a pool, too.
    """

    def __init__(self, loop: ProcessLoop) -> None:
        self._loop = loop
        self._jobs: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self.is_running_job = False

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run `fn` soon."""
        future: Future[Any] = Future()
        self._jobs.append((future, lambda: fn(*args, **kwargs)))
        scheduler = self._loop._scheduler
        scheduler.later(scheduler.random.random() * THREAD_DELAY_MAX_S, self._run_one)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Run all jobs that are left: the caller waits for them."""
        while self._jobs:
            self._run_one()

    def _run_one(self) -> None:
        if not self._jobs or self._loop.is_dead:
            return
        future, job = self._jobs.popleft()
        if not future.set_running_or_notify_cancel():
            return
        self.is_running_job = True
        running = get_running_loop()
        set_running_loop(None)
        try:
            result = job()
        except Exception as error:  # noqa: BLE001 - as a thread pool does: it belongs to the future
            future.set_exception(error)
        except KilledError:
            return
        else:
            future.set_result(result)
        finally:
            self.is_running_job = False
            set_running_loop(running)
