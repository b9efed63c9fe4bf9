"""A time limit for Python code that does not return by itself, such as a regular expression.

The regular expressions of a JSON schema are its author's: one such as `(a+)+$` would keep the
process for hours. `re` lets signals through while it matches; they come to the main thread only,
which is where the gateway's loop runs.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises TimeoutError within the block. In another thread than the main one: no limit."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def expired(_number: int, _frame: FrameType | None) -> None:
        raise TimeoutError

    former = signal.signal(signal.SIGALRM, expired)
    left_s, interval_s = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, left_s, interval_s)
        signal.signal(signal.SIGALRM, former)
