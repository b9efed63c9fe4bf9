"""Files that were renamed because they are to go, until their delay is over."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable

from headwater.clock import Clock
from headwater.ports.files import Files
from headwater_broker.log.log_context import Offload, RenamedFiles

logger = logging.getLogger(__name__)


class DeferredDeletion:
    """`add` in any thread, the rest on the loop."""

    def __init__(self, files: Files, clock: Clock, offload: Offload) -> None:
        self._files = files
        self._clock = clock
        self._offload = offload
        self._due: list[tuple[float, RenamedFiles]] = []
        self._arrived: deque[RenamedFiles] = deque()
        """Appended to by jobs off the loop, drained on it."""

    def add(self, item: RenamedFiles) -> None:
        """Remove this after its delay, which begins at the next look."""
        self._arrived.append(item)

    def remove_due(self) -> None:
        """Unlink, off the loop, what was renamed long enough ago."""
        now = self._clock.monotonic()
        while self._arrived:
            item = self._arrived.popleft()
            self._due.append((now + item.delay_ms / 1000, item))
        ready = [item for due, item in self._due if due <= now]
        self._due = [(due, item) for due, item in self._due if due > now]
        if ready:
            self._offload(lambda: self._remove(ready))

    def remove_new(self) -> None:
        """At the end: what came since the last look goes now. The next start finds the rest."""
        self._remove(list(self._arrived))

    def _remove(self, items: Iterable[RenamedFiles]) -> None:
        for item in items:
            for file in item.open_files:
                file.close()
            for path in item.paths:
                try:
                    self._files.remove(path)
                except OSError as e:
                    logger.error("cannot remove %s: %s", path, e)
