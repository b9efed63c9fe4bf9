"""SIGINT handler that cancels the user's Spark jobs and spares the brokers' jobs.

PySpark's own handler, for Ctrl-C and a notebook's interrupt, cancels *all* jobs of the context.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

Handler = Callable[[int, FrameType | None], Any] | int | signal.Handlers | None


def spare_groups(context: Any, groups: Callable[[], tuple[str, ...]]) -> Handler:
    """Install a handler that cancels all jobs but those of `groups()`; returns the former handler.

    Outside the main thread, where Python installs no handlers, does nothing and returns None.
    """
    if threading.current_thread() is not threading.main_thread():
        return None
    former = signal.getsignal(signal.SIGINT)

    def interrupted(signum: int, frame: FrameType | None) -> None:
        try:
            cancel_others(context, groups())
        finally:
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupted)
    return former


def cancel_others(context: Any, groups: tuple[str, ...]) -> None:
    """Cancel every active job outside `groups`."""
    tracker = context.statusTracker()
    spared = {job for group in groups for job in tracker.getJobIdsForGroup(group)}
    for job in tracker.getActiveJobsIds():
        if job not in spared:
            context._jsc.sc().cancelJob(job)


def restore(former: Handler) -> None:
    """Reinstall the former handler."""
    if former is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, former)
