"""Lets one thread at a time use a consumer, and none after `close`."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from headwater.client.errors import ClosedError, IllegalStateError


class ConsumerGuard:
    """Entered by each call of a consumer. A call within another one, of a listener, is allowed."""

    def __init__(self) -> None:
        self.is_closed = False
        self._is_leaving = False
        self._lock = threading.RLock()

    @property
    def is_open(self) -> bool:
        """Whether calls are allowed: until `close`, and to the listeners that it calls."""
        return not self.is_closed or self._is_leaving

    @contextmanager
    def leaving(self) -> Iterator[None]:
        """While the listeners are called for the last time, they may commit."""
        self._is_leaving = True
        try:
            yield
        finally:
            self._is_leaving = False

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            if self.is_closed:
                raise ClosedError("the consumer is closed")
            raise IllegalStateError(
                "another thread uses this consumer: one thread at a time may, except for wakeup() "
                "and close()"
            )
        if not self.is_open:
            self._lock.release()
            raise ClosedError("the consumer is closed")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._lock.release()

    def close(self) -> bool:
        """Refuse calls from now on, and wait for the one that runs; False if closed already.

        Call `release` afterwards if it is True.
        """
        if self.is_closed:
            return False
        self.is_closed = True
        self._lock.acquire()
        return True

    def release(self) -> None:
        """The end of `close`."""
        self._lock.release()
