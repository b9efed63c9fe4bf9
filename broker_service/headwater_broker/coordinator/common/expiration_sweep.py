"""A sweep over a shard's entries for what has expired, in parts so that no tick is long. Pure."""

from __future__ import annotations

from collections.abc import Iterable

PART_PAUSE_MS = 10
"""Between two parts of one sweep."""


class ExpirationSweep:
    """Names the entries to look at next, and when: parts in quick succession, then a rest."""

    def __init__(self, part_size: int, interval_ms: int) -> None:
        self._part_size = part_size
        self._interval_ms = interval_ms
        self._left: list[str] = []

    def next_part(self, names: Iterable[str]) -> list[str]:
        """The entries to look at now; `names`: all there are, read when a sweep begins."""
        if not self._left:
            self._left = list(names)
        part, self._left = self._left[: self._part_size], self._left[self._part_size :]
        return part

    @property
    def wait_ms(self) -> int:
        """How long to wait for the next part."""
        return PART_PAUSE_MS if self._left else self._interval_ms
