"""Work that outlives the request that asked for it, once per key."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any


class Background:
    """Tasks by key: a key that is at work is not started again."""

    def __init__(self) -> None:
        self._tasks: dict[Hashable, asyncio.Task[None]] = {}

    def once(self, key: Hashable, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start `work` unless `key` is being worked on."""
        if key in self._tasks:
            return
        task = asyncio.get_running_loop().create_task(work())
        self._tasks[key] = task
        task.add_done_callback(lambda _task: self._tasks.pop(key, None))

    async def close(self) -> None:
        """Cancel what runs."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
