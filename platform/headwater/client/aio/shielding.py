"""Work that a cancellation of its caller does not cut short: the close of every client, the end of
a transaction. A cancelled `send` is in `producer`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def shielded(work: Coroutine[Any, Any, T] | asyncio.Task[T]) -> T:
    """The result of `work`. A cancellation waits until the work is done, then it is raised.

    `work` has a time limit of its own.
    """
    task = work if isinstance(work, asyncio.Task) else asyncio.create_task(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as e:
            cancelled = e
    if cancelled is not None:
        raise cancelled
    return task.result()
