"""The page cache as a port: the loop must not wait for a disk, so it asks before it reads.

Real: `headwater_broker.network.page_cache.PageCache`; double: `AlwaysHot`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from headwater_broker.api.replies import FilePart


class Warmer(Protocol):
    """Tells whether bytes of a file are in the page cache, and reads them into it."""

    def is_cold(self, fd: int, position: int, size: int) -> bool:
        """True when reading may wait for the disk. Costs about a microsecond."""
        ...

    async def warm(self, parts: Sequence[FilePart]) -> None:
        """Read the start of each part into the page cache, in another thread.

        The parts must own their descriptors, which stay open until then.
        """
        ...


class AlwaysHot:
    """The page cache of memory files and tests: nothing is cold."""

    def is_cold(self, fd: int, position: int, size: int) -> bool:
        """Always False."""
        return False

    async def warm(self, parts: Sequence[FilePart]) -> None:
        """Does nothing."""
