"""Randomness as a port. Real: `headwater.system.SystemEntropy`; double: seeded."""

from __future__ import annotations

from typing import Protocol
from uuid import UUID


class Entropy(Protocol):
    """The only source of random values. Never raises."""

    def uuid(self) -> UUID:
        """A random UUID (version 4)."""
        ...

    def uniform(self, low: float, high: float) -> float:
        """A random float in [low, high], for jitter."""
        ...

    def randbytes(self, size: int) -> bytes:
        """`size` random bytes."""
        ...
