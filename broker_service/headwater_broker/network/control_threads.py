"""The threads of the control port, which calls without their message cannot keep from others.

gRPC begins a call when its headers are here; the message may come later, or never, and a thread
waits for it. A caller that means it sends both at once. So calls whose message is late are ended
while they hold half of the threads, and until all waiting calls had a thread the newest comes
first: many half calls delay a whole one by moments.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, ParamSpec

LATE_S = 0.2
"""A message that comes so long after its headers is late."""

P = ParamSpec("P")

logger = logging.getLogger(__name__)


class ControlThreads(Executor):
    """At most so many threads, started when calls wait for one."""

    def __init__(self, threads_max: int, now: Callable[[], float], late_s: float = LATE_S) -> None:
        """`now`: seconds of a monotonic clock."""
        self._now = now
        self._pool = ThreadPoolExecutor(threads_max, thread_name_prefix="control")
        self._awaited_max = threads_max // 2
        self._late_s = late_s
        self._lock = threading.Lock()
        self._calls: deque[Callable[[], Any]] = deque()
        """Those that no thread has taken yet, the oldest first."""
        self._newest_first = False
        self._awaited: dict[int, tuple[float, Callable[[], None]]] = {}
        """Calls whose thread waits for their message: since when, and how to end them. The oldest
        first."""
        self._next_id = 0
        self._check: threading.Timer | None = None

    def submit(self, fn: Callable[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> Future[Any]:
        """Run a call in a thread. The future ends with a call, not always this one: gRPC counts
        them."""
        with self._lock:
            self._calls.append(partial(fn, *args, **kwargs))
        future = self._pool.submit(self._run_next)
        self._make_room()
        return future

    @contextmanager
    def awaiting(self, end: Callable[[], None]) -> Iterator[None]:
        """Around a call's wait for its message, in its thread. `end()` ends the call."""
        with self._lock:
            self._next_id += 1
            mine = self._next_id
            self._awaited[mine] = (self._now(), end)
        self._make_room()
        try:
            yield
        finally:
            with self._lock:
                self._awaited.pop(mine, None)

    def _run_next(self) -> Any:
        with self._lock:
            run = self._calls.pop() if self._newest_first else self._calls.popleft()
            if not self._calls:
                self._newest_first = False
        return run()

    def _make_room(self) -> None:
        """End the calls that are late, if the others need their threads; look again if some may be
        late soon."""
        with self._lock:
            if len(self._awaited) <= self._awaited_max or not self._calls:
                return
            before = self._now() - self._late_s
            late = [mine for mine, (since, _) in self._awaited.items() if since < before]
            ends = [self._awaited.pop(mine)[1] for mine in late]
            self._newest_first = self._newest_first or bool(late)
            if self._check is None:
                self._check = threading.Timer(self._late_s, self._check_again)
                self._check.daemon = True
                self._check.start()
        if ends:
            logger.warning("control calls without a message ended: %d", len(ends))
        for end in ends:
            end()

    def _check_again(self) -> None:
        with self._lock:
            self._check = None
        self._make_room()
