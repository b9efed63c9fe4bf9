"""Cold data as a port: the loop never waits for a disk, so it asks first.

Real: `headwater_broker.network.page_cache.PageCache`; double: `AlwaysHot`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from headwater_broker.api.replies import FilePart


class Warmer(Protocol):
    """Knows whether bytes of a file are in the page cache, and brings them there."""

    def is_cold(self, fd: int, position: int, size: int) -> bool:
        """True when reading may wait for the disk. Costs about a microsecond."""
        ...

    async def warm(self, parts: Sequence[FilePart]) -> None:
        """Bring the start of each part into the page cache, in another thread.

        The descriptors must stay open meanwhile (owned parts).
        """
        ...


class AlwaysHot:
    """For memory files and tests: nothing is ever cold."""

    def is_cold(self, fd: int, position: int, size: int) -> bool:
        """Always False."""
        return False

    async def warm(self, parts: Sequence[FilePart]) -> None:
        """Nothing to do."""
