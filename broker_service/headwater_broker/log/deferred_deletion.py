"""Removes renamed files when their delay is over (file.delete.delay.ms)."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable

from headwater.clock import Clock
from headwater.ports.files import Files
from headwater_broker.log.log_context import Offload, RenamedFiles

logger = logging.getLogger(__name__)


class DeferredDeletion:
    """`add` may be called in any thread, the other methods on the loop."""

    def __init__(self, files: Files, clock: Clock, offload: Offload) -> None:
        self._files = files
        self._clock = clock
        self._offload = offload
        self._due: list[tuple[float, RenamedFiles]] = []
        self._added: deque[RenamedFiles] = deque()
        """Appended to by jobs off the loop, drained on it."""

    def add(self, item: RenamedFiles) -> None:
        """Remove these files after their delay, which begins at the next `remove_due`."""
        self._added.append(item)

    def remove_due(self) -> None:
        """Remove, off the loop, the files whose delay is over."""
        now = self._clock.monotonic()
        while self._added:
            item = self._added.popleft()
            self._due.append((now + item.delay_ms / 1000, item))
        ready = [item for due, item in self._due if due <= now]
        self._due = [(due, item) for due, item in self._due if due > now]
        if ready:
            self._offload(lambda: self._remove(ready))

    def remove_new(self) -> None:
        """At shutdown: remove what was added since the last `remove_due`. The next start removes
        the rest."""
        self._remove(list(self._added))

    def _remove(self, items: Iterable[RenamedFiles]) -> None:
        for item in items:
            for file in item.open_files:
                file.close()
            for path in item.paths:
                try:
                    self._files.remove(path)
                except OSError as e:
                    logger.error("cannot remove %s: %s", path, e)
