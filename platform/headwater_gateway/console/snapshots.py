"""Answers of the cluster that pages share: asked for in the background, shown as last known.

A page waits a moment for what is not there yet, then comes without it; its next tick has it.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, TypeVar, cast

from headwater.clock import Clock
from headwater.errors import HeadwaterError

T = TypeVar("T")
FRESH_S = 4.0
STALE_S = 60.0
WAIT_S = 0.1
KEYS_MAX = 500

log = logging.getLogger(__name__)


class Snapshots:
    """The last answers, by key. Of one event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._values: OrderedDict[Hashable, tuple[float, Any]] = OrderedDict()
        self._tasks: dict[Hashable, asyncio.Task[None]] = {}

    async def get(
        self,
        key: Hashable,
        load: Callable[[], Awaitable[T]],
        *,
        fresh_s: float = FRESH_S,
        wait_s: float = WAIT_S,
    ) -> T | None:
        """The last answer, while a new one is asked for when it is older than `fresh_s`; without
        one that is younger than `STALE_S`, what comes in `wait_s`, else None.

        None, too, if the brokers refuse it: who may not see it sees the page without it.
        """
        at_s, value = self._values.get(key, (-math.inf, None))
        age_s = self._clock.monotonic() - at_s
        if age_s >= fresh_s:
            task = self._asked(key, load)
            if age_s >= STALE_S:
                await asyncio.wait([task], timeout=wait_s)
                value = self._value(key)
        return cast("T | None", value)

    def _asked(self, key: Hashable, load: Callable[[], Awaitable[Any]]) -> asyncio.Task[None]:
        """The task that asks: one per key."""
        task = self._tasks.get(key)
        if task is None:
            task = asyncio.create_task(self._load(key, load), name="console-snapshot")
            self._tasks[key] = task
            task.add_done_callback(lambda _task: self._tasks.pop(key, None))
        return task

    def _value(self, key: Hashable) -> Any:
        known = self._values.get(key)
        return None if known is None else known[1]

    async def _load(self, key: Hashable, load: Callable[[], Awaitable[Any]]) -> None:
        value = None
        try:
            value = await load()
        except HeadwaterError as error:
            log.debug("no answer for a page: %s", error)
        self._values[key] = (self._clock.monotonic(), value)
        self._values.move_to_end(key)
        if len(self._values) > KEYS_MAX:
            self._values.popitem(last=False)

    async def close(self) -> None:
        """End what is asked for."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
