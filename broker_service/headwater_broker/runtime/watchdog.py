"""A loop that stands still ends its process; without this its broker would lead on for ever.

ZooKeeper's heartbeats come from kazoo's own thread, so a broker whose loop hangs keeps its session
and everything it leads, serves nobody, and cannot even obey SIGTERM. The watchdog's thread asks the
loop for a sign of life. It counts its own looks, not seconds: a process that was stopped, or had no
core, is not taken for one that hangs.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import threading
from collections.abc import Callable

LOOKS = 12
"""So many looks in a row without a sign of life end the process; evenly over the limit."""
EXIT_HUNG = 70
"""The exit code (EX_SOFTWARE)."""


def end_process() -> None:
    """Where every thread stands goes to stderr, then the process ends without any clean-up."""
    os.write(2, b"the loop stands still: giving up. Where the threads are:\n")
    faulthandler.dump_traceback()
    os._exit(EXIT_HUNG)


class Watchdog:
    """One per broker. `limit_s`: how long the loop may stand still, about."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        limit_s: float,
        give_up: Callable[[], None] = end_process,
    ) -> None:
        self._loop = loop
        self._look_s = limit_s / LOOKS
        self._give_up = give_up
        self._alive = threading.Event()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def start(self) -> None:
        """Begin to look; on the loop's thread."""
        self._alive.set()
        self._thread.start()

    def stop(self) -> None:
        """Look no more: what is done at the end may take its time."""
        self._stopped.set()

    def _watch(self) -> None:
        silent = 0
        while not self._stopped.wait(self._look_s):
            silent = self.look(silent)

    def look(self, silent: int) -> int:
        """One look; `silent` is how many in a row there was no sign, and so is the result."""
        if self._alive.is_set():
            self._alive.clear()
            self._loop.call_soon_threadsafe(self._alive.set)
            return 0
        if silent + 1 == LOOKS:
            self._give_up()
        return silent + 1
