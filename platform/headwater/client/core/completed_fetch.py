"""One partition of a fetch response in the consumer, and which of its batches are aborted. Pure."""

from __future__ import annotations

import heapq
from typing import NamedTuple

from headwater.records.control import ControlType


class CompletedFetch(NamedTuple):
    """One partition of one fetch response: whole batches, and the aborted transactions in them."""

    records: memoryview
    start_offset: int
    next_offset: int
    aborted: list[tuple[int, int]]
    """(producer id, first offset)."""
    leader_epoch: int = -1
    """Of the last batch."""


class AbortedFilter:
    """Finds the batches of aborted transactions in one fetch (KIP-98, read_committed)."""

    __slots__ = ("_pending", "_producers")

    def __init__(self, aborted: list[tuple[int, int]]) -> None:
        self._pending = [(first, producer) for producer, first in aborted]
        heapq.heapify(self._pending)
        self._producers: set[int] = set()

    def is_aborted(self, producer_id: int, last_offset: int) -> bool:
        """True if the producer's batch that ends at `last_offset` was aborted."""
        while self._pending and self._pending[0][0] <= last_offset:
            self._producers.add(heapq.heappop(self._pending)[1])
        return producer_id in self._producers

    def on_marker(self, producer_id: int, kind: ControlType) -> None:
        """A control record ends a transaction of the producer."""
        if kind is ControlType.ABORT:
            self._producers.discard(producer_id)
