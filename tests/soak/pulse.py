"""Checks whether librdkafka's main thread still runs, so that its own deadlock is not taken for a
fault of a broker.

The thread wakes once a second by its own clock, whatever brokers do. It can deadlock: it takes two
locks in both orders when a leader is gone while an OffsetForLeaderEpoch is in flight
(confluentinc/librdkafka#5476; 2.16.0 has the bug). Then partitions of live leaders are still read,
no new leader is followed, and commit() and close() never return.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from confluent_kafka import Consumer

MAIN_THREAD = "rdk:main"
STILL_S = 30.0
LOOK_S = 1.0
TASKS = Path("/proc/self/task")

C = TypeVar("C")
"""A consumer or a producer."""

_making = threading.Lock()


class StoodStillError(Exception):
    """librdkafka's main thread has not run for `STILL_S`."""


class Pulse:
    """The main thread of one client, observed by the kernel's counts of context switches."""

    def __init__(self, threads: set[str], tasks: Path = TASKS) -> None:
        self._threads, self._tasks = threads, tasks
        self._looked = self._look()
        self._since = time.monotonic()
        """The time of `_looked`: its threads have not run since."""

    def _look(self) -> dict[str, str]:
        looks = ((thread, _switches(self._tasks / thread)) for thread in self._threads)
        return {thread: switches for thread, switches in looks if switches}

    def stands_still(self) -> bool:
        """Whether a thread exists and has not run for `STILL_S`."""
        look, now = self._look(), time.monotonic()
        if not look.items() & self._looked.items():
            self._looked, self._since = look, now
        return now - self._since >= STILL_S

    def has_stopped(self) -> bool:
        """Like `stands_still`, for a client that was not observed because it hangs in a call. It
        waits until the answer is certain."""
        self.stands_still()  # it did run between the last look and its end
        began = time.monotonic()
        while not self.stands_still():
            if self._since > began:
                return False
            time.sleep(LOOK_S)
        return True

    def check(self) -> None:
        """Raises StoodStillError."""
        if self.stands_still():
            raise StoodStillError(f"librdkafka's main thread has not run for {STILL_S:.0f} s")


def with_pulse(make: Callable[[], C], tasks: Path = TASKS) -> tuple[C, Pulse]:
    """A new client and its pulse. Threads that others start meanwhile are watched too; they end."""
    with _making:
        before = _main_threads(tasks)
        client = make()
        return client, Pulse(_main_threads(tasks) - before, tasks)


@contextmanager
def closing(consumer: Consumer) -> Iterator[None]:
    """Close the consumer at the end. One that stands still is left as it is."""
    try:
        yield
    except StoodStillError:
        # Its destructor, too, waits for the main thread, and would block the end of the process.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(consumer))
        raise
    except BaseException:
        consumer.close()
        raise
    consumer.close()


def _main_threads(tasks: Path) -> set[str]:
    return {task.name for task in tasks.iterdir() if _of(task, "comm") == MAIN_THREAD}


def _switches(task: Path) -> str:
    """Both counts of context switches; empty if the thread has ended."""
    return " ".join(line for line in _of(task, "status").split("\n") if "ctxt_switches" in line)


def _of(task: Path, name: str) -> str:
    try:
        return (task / name).read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""
