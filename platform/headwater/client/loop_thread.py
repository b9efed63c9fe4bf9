"""A client's asyncio loop on a background thread, and blocking calls into it."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from headwater.client.errors import ClosedError, IllegalStateError, KafkaTimeoutError

T = TypeVar("T")
STOP_TIMEOUT_S = 5.0
LAST_TURNS_MAX = 100
"""Turns of the loop that cancelled tasks have for their ends."""


class LoopThread:
    """A daemon thread that runs one event loop until `stop`."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._process = os.getpid()
        self._lock = threading.Lock()
        """Guards `_is_ending`: no coroutine is handed to a loop that will not run it."""
        self._is_ending = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def is_current(self) -> bool:
        """True when the calling code runs on this thread, in a callback."""
        return threading.current_thread() is self._thread

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            with self._lock:
                self._is_ending = True
            self._end_tasks()
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()

    def _end_tasks(self) -> None:
        """Cancel every task, also those that callbacks and cancelled tasks begin meanwhile."""
        cancelled: set[asyncio.Task[Any]] = set()
        for _ in range(LAST_TURNS_MAX):
            self.loop.run_until_complete(asyncio.sleep(0))
            tasks = asyncio.all_tasks(self.loop)
            if not tasks:
                return
            for task in tasks - cancelled:
                task.cancel()
            cancelled |= tasks

    def _submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Run `work` on the loop. Raises ClosedError after `stop`."""
        with self._lock:
            if not self._is_ending and self._thread.is_alive():
                return asyncio.run_coroutine_threadsafe(work, self.loop)
        work.close()
        raise ClosedError("the client is closed")

    def call(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Run `work` on the loop and wait for its result.

        Raises its error, KafkaTimeoutError when the time is up, ClosedError after `stop`, and
        IllegalStateError on the loop's own thread, which would wait for itself, and in a process
        that was forked.
        """
        try:
            check_process(self._process)
        except IllegalStateError:
            work.close()
            raise
        if self.is_current:
            work.close()
            raise IllegalStateError("a callback on the client's own thread cannot wait for it")
        future = self._submit(work)
        try:
            return future.result(timeout_s)
        except concurrent.futures.TimeoutError:
            if future.done():
                raise
            future.cancel()
            raise KafkaTimeoutError(f"no answer within {timeout_s} s") from None
        except concurrent.futures.CancelledError:
            raise ClosedError("the client was closed during the call") from None
        except BaseException:
            future.cancel()
            raise

    def post(self, callback: Callable[[], object]) -> None:
        """Call `callback` soon on the loop; any thread may ask for it."""
        self.loop.call_soon_threadsafe(callback)

    def start(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Run `work` on the loop, without waiting for it. Raises ClosedError after `stop`."""
        return self._submit(work)

    def deliver(self, callback: Callable[[], object]) -> None:
        """Call `callback`: the threads that wait use conditions, which any thread may notify."""
        callback()

    def awaited(self, work: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
        """The same as `call` for another running loop: a future of its own.

        Raises ClosedError after `stop`.
        """
        return asyncio.wrap_future(self._submit(work))

    def stop(self) -> None:
        """Stop the loop and end the thread. A second call does nothing."""
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(STOP_TIMEOUT_S)


def check_process(maker: int) -> None:
    """Raises IllegalStateError in another process than `maker`: threads and connections of a client
    do not come along with a fork."""
    if os.getpid() != maker:
        raise IllegalStateError(
            f"this client belongs to process {maker}, which forked this one: make one in each "
            "process, after the fork"
        )
