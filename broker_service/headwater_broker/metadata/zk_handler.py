"""kazoo's handler, with fewer thread switches between a reply of ZooKeeper and the broker's loop.

Each switch costs a wake-up, which is more than the work on most replies.
"""

from __future__ import annotations

import logging
import selectors
from types import SimpleNamespace
from typing import Any

from kazoo.handlers.threading import AsyncResult
from kazoo.handlers.utils import selector_select

from headwater.local.zk_client import TlsHandler

logger = logging.getLogger(__name__)

_POLL = SimpleNamespace(
    DefaultSelector=selectors.PollSelector,
    EVENT_READ=selectors.EVENT_READ,
    EVENT_WRITE=selectors.EVENT_WRITE,
)
"""kazoo creates a selector for each wait. With epoll that is four system calls more than with poll.
"""


class DirectCallbackResult(AsyncResult):  # type: ignore[misc] # kazoo has no types
    """Runs callbacks on the thread that received the reply, not on a callback thread.

    So a callback must not block. It may post to another thread, or send another request.
    """

    def _do_callbacks(self) -> None:
        for callback in self._callbacks:
            try:
                callback(self)
            except Exception:  # the connection's thread must live on
                logger.exception("a callback of a ZooKeeper request failed")


class DirectCallbackHandler(TlsHandler):
    """kazoo's `SequentialThreadingHandler` with direct callbacks and poll."""

    def async_result(self) -> DirectCallbackResult:
        """The pending result of a request."""
        return DirectCallbackResult(self)

    def wait(self, *args: Any, **kwargs: Any) -> Any:
        """Like `select.select`, for any file descriptor."""
        return selector_select(*args, selectors_module=_POLL, **kwargs)
