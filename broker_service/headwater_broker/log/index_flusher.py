"""Writes the newest index entries of active segments to their files, a second after they are made.

Indexes gather entries and write a kilobyte at a time. Without this a quiet partition's `.index` and
`.timeindex` stay empty on disk for minutes, and Kafka's DumpLogSegments shows nothing.
"""

from __future__ import annotations

from typing import Protocol

LOGS_PER_FLUSH = 100
"""One flush writes two small files for each of these logs: some 2 ms on the loop."""


class IndexedLog(Protocol):
    """A log whose active segment has index entries that its files lack."""

    def write_indexes(self) -> None:
        """Write them; nothing for a closed log."""
        ...


class IndexFlusher:
    """The logs with unwritten index entries, in the order in which they got them."""

    def __init__(self) -> None:
        self._logs: dict[IndexedLog, None] = {}

    def add(self, log: IndexedLog) -> None:
        """`log` has a new index entry; costs once per index interval."""
        self._logs[log] = None

    def flush(self) -> None:
        """Write the indexes of the logs that wait longest; the next flush writes more."""
        for log in list(self._logs)[:LOGS_PER_FLUSH]:
            del self._logs[log]
            log.write_indexes()
