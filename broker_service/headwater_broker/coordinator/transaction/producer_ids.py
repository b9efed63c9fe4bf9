"""Producer ids from blocks of the controller; no id is ever assigned twice (KIP-730)."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable

from headwater.errors import ErrorCode, KafkaError

IDS_LOW = 500
"""Another block is fetched ahead when fewer ids than this are left (a block has 1,000)."""

logger = logging.getLogger(__name__)


class ProducerIds:
    """The blocks of this broker. Ids left at a stop are never used: there are 2^63.

    A timer calls `stock`, so that new producers need not wait for the controller, and start also
    while ZooKeeper is unreachable and there is no controller.
    """

    def __init__(self, allocate: Callable[[], Awaitable[tuple[int, int]]]) -> None:
        """`allocate()` returns (start, length) of a new block. Raises KafkaError."""
        self._allocate = allocate
        self._blocks: deque[range] = deque()
        self._fetching = asyncio.Lock()
        self._failures = 0
        self._failure = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        """Of the latest attempt that failed."""

    @property
    def is_low(self) -> bool:
        """True when `stock` would fetch a block."""
        return sum(map(len, self._blocks)) < IDS_LOW

    async def fresh(self) -> int:
        """The next id. Raises KafkaError when no controller allocates a block.

        Requests that wait for the same attempt fail with it: one attempt after the other would let
        the last of them wait for all timeouts before.
        """
        while not self._blocks:
            failures = self._failures
            async with self._fetching:
                if self._failures != failures:
                    raise KafkaError(self._failure.code, self._failure.detail)
                if not self._blocks:
                    await self._fetch()
        return self._next()

    def ready(self) -> int:
        """The next id if one is in reserve, else -1: for requests that rarely need one."""
        return self._next() if self._blocks else -1

    def give_back(self, producer_id: int) -> None:
        """An id that `fresh` or `ready` returned and that nobody has seen is the next one again."""
        if producer_id >= 0:
            self._blocks.appendleft(range(producer_id, producer_id + 1))

    async def stock(self) -> None:
        """Fetch a block when few ids are left; a failure is logged, the next call tries again."""
        async with self._fetching:
            if not self.is_low:
                return
            try:
                await self._fetch()
            except KafkaError as error:
                logger.warning("no producer ids in reserve: %s", error)

    async def _fetch(self) -> None:
        try:
            start, length = await self._allocate()
        except KafkaError as error:
            self._failures += 1
            self._failure = _of_client(error)
            raise self._failure from error
        if length <= 0:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "an empty id block")
        self._blocks.append(range(start, start + length))

    def _next(self) -> int:
        block = self._blocks[0]
        if len(block) == 1:
            self._blocks.popleft()
        else:
            self._blocks[0] = block[1:]
        return block[0]


def _of_client(error: KafkaError) -> KafkaError:
    """A retriable error for a client. STALE_BROKER_EPOCH is about this broker, which has just
    registered anew; a client would take it for final."""
    if error.retriable:
        return error
    return KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"no producer ids: {error}")
