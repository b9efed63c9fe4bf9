"""Long work on the event loop in pieces: others have their turn between them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

T = TypeVar("T")
ROWS = 200
"""Of one turn: a few milliseconds of records."""


async def in_turns(rows: Iterable[T]) -> AsyncIterator[T]:
    """The rows; after each `ROWS` of them the loop goes round once."""
    for number, row in enumerate(rows, 1):
        yield row
        if number % ROWS == 0:
            await asyncio.sleep(0)
