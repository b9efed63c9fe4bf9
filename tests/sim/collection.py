"""The garbage collection at the end of a world."""

from __future__ import annotations

import gc
import warnings
from random import Random

from sim.loop import ProcessLoop, Scheduler, set_running_loop

COLLECTIONS_MAX = 10


def collect() -> None:
    """Collect the frames of killed processes: their `finally` blocks run now, in a loop where that
    has no effect. Tasks that these blocks start are collected in the next round, so that nothing of
    a world is left for the interpreter's exit."""
    limbo = ProcessLoop(Scheduler(Random(0)), "limbo", 0)
    limbo.kill()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # coroutines that are never awaited
        for _ in range(COLLECTIONS_MAX):
            set_running_loop(limbo)
            try:
                found = gc.collect()
            finally:
                set_running_loop(None)
            if not found:
                return
