"""Work that outlives the request that asked for it, once per key."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Iterable
from typing import Any, TypeVar

K = TypeVar("K", bound=Hashable)


class Background:
    """Tasks by key: a key that is at work is not started again."""

    def __init__(self) -> None:
        self._tasks: dict[Hashable, asyncio.Task[None]] = {}

    def is_running(self, key: Hashable) -> bool:
        """True while the work of `key` runs."""
        return key in self._tasks

    def once(self, key: Hashable, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start `work` unless `key` is being worked on."""
        self.together((key,), lambda _keys: work())

    def together(
        self, keys: Iterable[K], work: Callable[[list[K]], Coroutine[Any, Any, None]]
    ) -> None:
        """Start one `work` for those of `keys` that are not being worked on, if any."""
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
        """Cancel what runs."""
        tasks = list(dict.fromkeys(self._tasks.values()))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
