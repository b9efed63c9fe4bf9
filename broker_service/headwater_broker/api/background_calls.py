"""Background work of handlers: it outlives its request, and runs once per key at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Iterable
from typing import Any, TypeVar

K = TypeVar("K", bound=Hashable)


class Background:
    """Running tasks by key. Work whose key is running is not started again."""

    def __init__(self) -> None:
        self._tasks: dict[Hashable, asyncio.Task[None]] = {}

    def is_running(self, key: Hashable) -> bool:
        """True while the work of `key` runs."""
        return key in self._tasks

    def once(self, key: Hashable, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start `work` unless that of `key` is running."""
        self.together((key,), lambda _keys: work())

    def together(
        self, keys: Iterable[K], work: Callable[[list[K]], Coroutine[Any, Any, None]]
    ) -> None:
        """Start one `work` for all `keys` whose work is not running, if there are any."""
        idle = [key for key in dict.fromkeys(keys) if key not in self._tasks]
        if not idle:
            return
        task = asyncio.get_running_loop().create_task(work(idle))
        self._tasks.update(dict.fromkeys(idle, task))

        def ended(_task: asyncio.Task[None]) -> None:
            for key in idle:
                self._tasks.pop(key, None)

        task.add_done_callback(ended)

    async def close(self) -> None:
        """Cancel all work."""
        tasks = list(dict.fromkeys(self._tasks.values()))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
