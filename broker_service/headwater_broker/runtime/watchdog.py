"""Ends the process when its event loop hangs; without this the broker would stay leader for ever.

ZooKeeper's heartbeats come from kazoo's own thread, so a broker whose loop hangs keeps its session
and its leaderships, serves no request, and cannot even obey SIGTERM. The watchdog's thread asks the
loop for a sign of life at intervals. It counts its own checks, not seconds, so that a process that
was stopped or had no core does not count as one that hangs.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import threading
from collections.abc import Callable

CHECKS = 12
"""This many checks in a row without a sign of life end the process; they divide the limit."""
EXIT_HUNG = 70
"""The exit code (EX_SOFTWARE)."""


def end_process() -> None:
    """Write the stack of every thread to stderr, and end the process without clean-up."""
    os.write(2, b"the event loop hangs: the process ends. The stacks of its threads:\n")
    faulthandler.dump_traceback()
    os._exit(EXIT_HUNG)


class Watchdog:
    """One per broker. `limit_s`: for how long the loop may hang, approximately."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        limit_s: float,
        give_up: Callable[[], None] = end_process,
    ) -> None:
        self._loop = loop
        self._interval_s = limit_s / CHECKS
        self._give_up = give_up
        self._alive = threading.Event()
        self._alive.set()  # the first check asks
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def start(self) -> None:
        """Begin to check; called on the loop's thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the checks: turns of the loop may be long during the shutdown."""
        self._stopped.set()

    def _watch(self) -> None:
        silent = 0
        while not self._stopped.wait(self._interval_s):
            silent = self.check(silent)

    def check(self, silent: int) -> int:
        """Check once. `silent` and the result: how many checks in a row found no sign of life."""
        if self._alive.is_set():
            self._alive.clear()
            self._loop.call_soon_threadsafe(self._alive.set)
            return 0
        if silent + 1 == CHECKS:
            self._give_up()
        return silent + 1
