"""kazoo's threads, with fewer steps between an answer of ZooKeeper and the broker's loop.

Each step from thread to thread costs a wake-up, more than all that is done with most answers.
"""

from __future__ import annotations

import logging
import selectors
from types import SimpleNamespace
from typing import Any

from kazoo.handlers.threading import AsyncResult, SequentialThreadingHandler
from kazoo.handlers.utils import selector_select

logger = logging.getLogger(__name__)

_POLL = SimpleNamespace(
    DefaultSelector=selectors.PollSelector,
    EVENT_READ=selectors.EVENT_READ,
    EVENT_WRITE=selectors.EVENT_WRITE,
)
"""kazoo makes a selector for each wait: one of epoll is four system calls more."""


class DirectCallbackResult(AsyncResult):  # type: ignore[misc] # kazoo has no types
    """Calls who waits for it on the thread that has the answer, not on a thread for that alone.

    Whoever is called may only post to another thread, or ask kazoo for more: neither waits.
    """

    def _do_callbacks(self) -> None:
        for callback in self._callbacks:
            try:
                callback(self)
            except Exception:  # the connection's thread must go on
                logger.exception("a callback of a ZooKeeper request failed")


class DirectCallbackHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """`SequentialThreadingHandler` with these."""

    def async_result(self) -> DirectCallbackResult:
        """What a request will give."""
        return DirectCallbackResult(self)

    def select(self, *args: Any, **kwargs: Any) -> Any:
        """As `select.select`, for any file descriptor."""
        return selector_select(*args, selectors_module=_POLL, **kwargs)
