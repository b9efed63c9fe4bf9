"""Shows on stderr what a command waits for, when it has made no progress for a while."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import click

from headwater.clock import Clock

CHECK_EVERY_S = 0.5
FIRST_AFTER_S = 3.0
FACTOR = 3
"""A wait is shown again when it has lasted so many times longer."""


class Wait(NamedTuple):
    """What a command waits for. The same `key` is the same wait: no progress was made."""

    key: Hashable
    text: str


class StallWatch:
    """Shows waits that last. `current()` is the command's wait now, None while there is none."""

    def __init__(self, current: Callable[[], Wait | None], clock: Clock) -> None:
        self._current = current
        self._clock = clock
        self._key: Hashable = None
        self._since = clock.monotonic()
        self._next_s = FIRST_AFTER_S

    def check(self) -> None:
        """Look at the current wait; show it if it is due."""
        wait, now = self._current(), self._clock.monotonic()
        key = None if wait is None else wait.key
        if key != self._key:
            self._key, self._since, self._next_s = key, now, FIRST_AFTER_S
        if wait is not None and now - self._since >= self._next_s:
            self._next_s *= FACTOR
            click.echo(f"headwater: waiting for {now - self._since:.0f} s: {wait.text}", err=True)


@contextmanager
def watching(current: Callable[[], Wait | None], clock: Clock) -> Iterator[None]:
    """Watch for stalls in a thread during this context."""
    watch, over = StallWatch(current, clock), threading.Event()

    def check() -> None:
        while not over.wait(CHECK_EVERY_S):
            watch.check()

    thread = threading.Thread(target=check, name="stall-watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
