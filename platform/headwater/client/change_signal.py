"""Wakes a consumer's caller when the loop has changed what both use; one lock guards that."""

from __future__ import annotations

import threading
from collections.abc import Callable


class ChangeSignal:
    """`condition` guards what belongs to both sides."""

    def __init__(self) -> None:
        self.condition = threading.Condition()
        self.version = 0
        """Rises with each change."""
        self.on_change: Callable[[], None] = nothing
        """Called with the lock held when a poll that waits may go on: for callers that are no
        threads."""

    def notify(self) -> None:
        """Wake a poll that waits."""
        with self.condition:
            self.notify_locked()

    def notify_locked(self) -> None:
        """Wake a poll that waits; the caller holds the lock."""
        self.version += 1
        self.condition.notify_all()
        self.on_change()


def nothing() -> None:
    """Of a consumer whose callers are threads: the condition wakes them."""
