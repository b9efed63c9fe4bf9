"""The producers' ledger: for every record of the world, when it was sent, and if it is acked."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np

Ranges = Mapping[int, tuple[int, int]]
"""Partition -> first offset and end offset of a chunk's records."""


class Ledger:
    """What producers have done, by topic and row of the world."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self._sent_ms = {topic: np.full(size, np.nan) for topic, size in sizes.items()}
        self._acked = {topic: np.zeros(size, bool) for topic, size in sizes.items()}
        self._lock = threading.Lock()
        self.failures: list[str] = []
        """Errors of chunks, for the operator: each was sent again, or is still in its spool."""

    def real_sent_ms(self, topic: str) -> Any:
        """By row, the real time of the first sending; NaN until it is sent."""
        return self._sent_ms[topic]

    def acked(self, topic: str) -> Any:
        """By row, whether a broker has acknowledged it."""
        return self._acked[topic]

    def note_sent(self, topic: str, rows: Any, real_ms: float) -> None:
        """Rows are about to be sent; a later sending of the same rows changes nothing."""
        times = self._sent_ms[topic]
        times[rows] = np.where(np.isnan(times[rows]), real_ms, times[rows])

    def note_acked(self, topic: str, rows: Any) -> None:
        """Rows are acknowledged."""
        self._acked[topic][rows] = True

    def note_failure(self, text: str) -> None:
        """A chunk has failed."""
        with self._lock:
            self.failures.append(text)

    @property
    def sent_count(self) -> int:
        """Records sent so far."""
        return sum(int((~np.isnan(times)).sum()) for times in self._sent_ms.values())

    @property
    def acked_count(self) -> int:
        """Records acknowledged so far."""
        return sum(int(acked.sum()) for acked in self._acked.values())

    @property
    def total(self) -> int:
        """Records of the whole day."""
        return sum(len(acked) for acked in self._acked.values())
