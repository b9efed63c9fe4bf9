"""Ctrl-C (or a notebook's interrupt) ends the user's jobs, but not the brokers.

PySpark's own handler cancels *all* jobs of the context, and with them every broker.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

Handler = Callable[[int, FrameType | None], Any] | int | signal.Handlers | None


def spare_groups(context: Any, groups: tuple[str, ...]) -> Handler:
    """Install a handler that cancels all jobs but those of `groups`; the former handler.

    None (and nothing installed) outside the main thread, where Python takes no handlers.
    """
    if threading.current_thread() is not threading.main_thread():
        return None
    former = signal.getsignal(signal.SIGINT)

    def interrupted(signum: int, frame: FrameType | None) -> None:
        try:
            cancel_others(context, groups)
        finally:
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupted)
    return former


def cancel_others(context: Any, groups: tuple[str, ...]) -> None:
    """Cancel every active job that is in none of `groups`."""
    tracker = context.statusTracker()
    spared = {job for group in groups for job in tracker.getJobIdsForGroup(group)}
    for job in tracker.getActiveJobsIds():
        if job not in spared:
            context._jsc.sc().cancelJob(job)


def restore(former: Handler) -> None:
    """Put the former handler back."""
    if former is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, former)
