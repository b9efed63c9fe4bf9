"""Producer ids from blocks of the controller; no id is ever given out twice (KIP-730)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from headwater.errors import ErrorCode, KafkaError


class ProducerIds:
    """This broker's current block. Ids left over at a stop are never used: there are 2^63."""

    def __init__(self, allocate: Callable[[], Awaitable[tuple[int, int]]]) -> None:
        """`allocate()` gives (start, length). Raises KafkaError."""
        self._allocate = allocate
        self._next = 0
        self._end = 0
        self._asking = asyncio.Lock()

    async def fresh(self) -> int:
        """The next id. Raises KafkaError when no controller gives a block."""
        if self._next >= self._end:
            async with self._asking:
                if self._next >= self._end:
                    start, length = await self._allocate()
                    if length <= 0:
                        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "an empty id block")
                    self._next, self._end = start, start + length
                return self._take()
        return self._take()

    def _take(self) -> int:
        producer_id = self._next
        self._next += 1
        return producer_id
