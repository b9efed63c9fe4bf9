"""A set in the order of insertion, so that iteration is the same in every run.

A plain set of objects iterates by their addresses. Every decision that depends on its order would
differ from run to run, also in the simulator.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class OrderedSet(Generic[T]):
    """A set that iterates in the order of insertion."""

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
        """Add it at the end, unless it is in the set."""
        self._items.setdefault(item)

    def discard(self, item: T) -> None:
        """Remove it if it is in the set."""
        self._items.pop(item, None)
