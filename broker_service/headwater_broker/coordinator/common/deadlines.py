"""Deadlines by key, cheap to move later: renewing one is a dictionary write. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Deadlines(Generic[K]):
    """A heap whose entries may be early: an entry that is popped too early is pushed again.

    Times are milliseconds on the steady clock.
    """

    def __init__(self) -> None:
        self._at: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._in_heap: dict[K, float] = {}
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._at)

    def set(self, key: K, at_ms: float) -> None:
        """Set the deadline of `key`, whatever it was before."""
        self._at[key] = at_ms
        known = self._in_heap.get(key)
        if known is None or known > at_ms:
            self._push(key, at_ms)

    def is_set(self, key: K) -> bool:
        """True when `key` has a deadline, also one set after it was popped."""
        return key in self._at

    def cancel(self, key: K) -> None:
        """Remove the deadline of `key`, if it has one."""
        self._at.pop(key, None)

    def next_ms(self) -> float | None:
        """When to call `pop_due` next (perhaps in vain); None: there are no deadlines."""
        heap = self._heap
        while heap:
            at_ms, _, key = heap[0]
            if key in self._at and self._in_heap.get(key) == at_ms:
                return at_ms
            self._drop()
        return None

    def pop_due(self, now_ms: float) -> list[K]:
        """The keys whose deadline has passed, earliest first; their deadlines are removed."""
        due: list[K] = []
        heap = self._heap
        while heap and heap[0][0] <= now_ms:
            key = self._drop()
            if key in self._in_heap:
                continue  # a newer entry of this key is still in the heap
            at_ms = self._at.get(key)
            if at_ms is None:
                continue
            if at_ms > now_ms:
                self._push(key, at_ms)
            else:
                del self._at[key]
                due.append(key)
        return due

    def _push(self, key: K, at_ms: float) -> None:
        self._sequence += 1
        self._in_heap[key] = at_ms
        heapq.heappush(self._heap, (at_ms, self._sequence, key))

    def _drop(self) -> K:
        at_ms, _, key = heapq.heappop(self._heap)
        if self._in_heap.get(key) == at_ms:
            del self._in_heap[key]
        return key
