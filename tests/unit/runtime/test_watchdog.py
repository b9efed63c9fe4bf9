"""The watchdog gives up on a loop that hangs, and on no other."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any, cast

from headwater_broker.runtime.watchdog import CHECKS, EXIT_HUNG, Watchdog


class Loop:
    """Runs what was posted only when told to."""

    def __init__(self) -> None:
        self.posted: list[Callable[[], None]] = []

    def call_soon_threadsafe(self, call: Callable[[], None]) -> None:
        self.posted.append(call)

    def turn(self) -> None:
        posted, self.posted = self.posted, []
        for call in posted:
            call()


def watched(loop: Loop) -> tuple[Watchdog, list[str]]:
    given_up: list[str] = []
    watchdog = Watchdog(cast(Any, loop), 1.0, lambda: given_up.append("now"))
    return watchdog, given_up


def test_gives_up_after_so_many_looks_without_a_sign() -> None:
    watchdog, given_up = watched(Loop())
    silent = watchdog.check(0)
    for look in range(CHECKS - 1):
        silent = watchdog.check(silent)
        assert (silent, given_up) == (look + 1, [])
    watchdog.check(silent)
    assert given_up == ["now"]


def test_a_sign_of_life_begins_the_count_anew() -> None:
    loop = Loop()
    watchdog, given_up = watched(loop)
    silent = 0
    for _ in range(5 * CHECKS):
        silent = watchdog.check(silent)
        if silent == CHECKS - 1:
            loop.turn()
            silent = watchdog.check(silent)
            assert silent == 0
    assert given_up == []


def test_one_question_at_a_time() -> None:
    loop = Loop()
    watchdog, _ = watched(loop)
    silent = 0
    for _ in range(CHECKS):
        silent = watchdog.check(silent)
    assert len(loop.posted) == 1


def test_a_real_loop_that_hangs_is_noticed() -> None:
    noticed = threading.Event()

    async def run() -> None:
        watchdog = Watchdog(asyncio.get_running_loop(), 0.05, noticed.set)
        watchdog.start()
        assert noticed.wait(60)  # the loop stands still meanwhile
        watchdog.stop()

    asyncio.run(run())


def test_the_process_ends_and_tells_where_it_hung() -> None:
    code = """
import asyncio, time
from headwater_broker.runtime.watchdog import Watchdog

async def the_loop_that_hangs():
    Watchdog(asyncio.get_running_loop(), 0.2).start()
    time.sleep(300)

asyncio.run(the_loop_that_hangs())
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == EXIT_HUNG
    assert "the event loop hangs" in done.stderr
    assert "in the_loop_that_hangs" in done.stderr
