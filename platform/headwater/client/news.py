"""Shared by the loop and a consumer's caller: one lock, and news for a caller that waits."""

from __future__ import annotations

import threading
from collections.abc import Callable


class News:
    """`condition` guards what belongs to both sides."""

    def __init__(self) -> None:
        self.condition = threading.Condition()
        self.version = 0
        """Rises with each piece of news."""
        self.on_news: Callable[[], None] = nothing
        """Called with the lock held when a poll that waits may go on: for callers that are no
        threads."""

    def notify(self) -> None:
        """Wake a poll that waits."""
        with self.condition:
            self.tell()

    def tell(self) -> None:
        """The same, called with the lock held."""
        self.version += 1
        self.condition.notify_all()
        self.on_news()


def nothing() -> None:
    """Of a consumer whose callers are threads: the condition wakes them."""
