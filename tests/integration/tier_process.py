"""A tierer as a process of its own, which kills itself at a named step; for the crash tests.

Usage: python tier_process.py FOLDER STEP OFFSETS_MAX. Tiers the deterministic log of `filled`
round by round until nothing is left, then prints `done`.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from headwater.system import SystemClock, SystemEntropy
from headwater_tier import commit, delta, files
from headwater_tier.plan import plan_ranges
from tier_log import MemoryLog, location_at

ROWS = {0: 700, 1: 450, 2: 60}


def filled() -> MemoryLog:
    log = MemoryLog()
    for partition, rows in ROWS.items():
        log.fill(partition, rows)
    log.fetch_bytes = 500
    return log


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def dies_before(owner: Any, name: str, times: int = 1) -> None:
    """Replace owner.name: its `times`-th call is the process's last."""
    real: Callable[..., Any] = getattr(owner, name)
    left = [times]

    def dying(*args: Any, **more: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            die()
        return real(*args, **more)

    setattr(owner, name, dying)


def dies_after(owner: Any, name: str) -> None:
    real: Callable[..., Any] = getattr(owner, name)

    def dying(*args: Any, **more: Any) -> Any:
        real(*args, **more)
        die()

    setattr(owner, name, dying)


STEPS: dict[str, Callable[[], None]] = {
    "none": lambda: None,
    "table created, nothing planned": lambda: dies_after(delta.LogTable, "create"),
    "before the file": lambda: dies_before(files, "_open_writer"),
    "half a file": lambda: dies_before(files._Facts, "add", times=2),
    "file whole, not durable": lambda: dies_before(files, "_make_durable"),
    "file durable": lambda: dies_after(files, "_make_durable"),
    "file checked": lambda: dies_after(commit, "check_file"),
    "before the commit": lambda: dies_before(delta.LogTable, "commit"),
    "after the commit": lambda: dies_after(delta.LogTable, "commit"),
    "commit seen": lambda: dies_before(commit, "_result"),
}


def main(folder: str, step: str, offsets_max: int) -> None:
    STEPS[step]()
    log, location = filled(), location_at(Path(folder))
    clock, entropy = SystemClock(), SystemEntropy()
    while True:
        ends = commit.ensure_table(location, len(ROWS))
        ranges = plan_ranges(ends, log.bounds(), offsets_max=offsets_max)
        if not ranges:
            break
        facts = files.tier_range(log.fetch, ranges, location, clock=clock, entropy=entropy)
        commit.commit_facts(location, ranges, [facts] if facts else [], clock=clock)
    print("done", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
