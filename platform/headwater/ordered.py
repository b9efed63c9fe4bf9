"""A set that remembers the order of adding: what iterates over it does the same in every run.

Plain sets of objects go by addresses, and so would everything that their order decides, down to a
simulated network's dice.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class OrderedSet(Generic[T]):
    """Add, discard and look up in O(1)."""

    __slots__ = ("_items",)

    def __init__(self) -> None:
        self._items: dict[T, None] = {}

    def __contains__(self, item: T) -> bool:
        return item in self._items

    def __iter__(self) -> Iterator[T]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def add(self, item: T) -> None:
        """Last in the order, unless it is there."""
        self._items.setdefault(item)

    def discard(self, item: T) -> None:
        """Remove it if it is there."""
        self._items.pop(item, None)
