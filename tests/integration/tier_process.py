"""A tiering process that kills itself at a named step; for the crash tests.

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

import pyarrow.parquet as pq

from headwater.system import SystemClock, SystemEntropy
from headwater_tier.commit import commit_facts, ensure_table
from headwater_tier.data_files import tier_range
from headwater_tier.delta import LogTable
from headwater_tier.offset_ranges import plan_ranges
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
    """Replace owner.name: the process dies at its `times`-th call."""
    _replace(owner, name, times, lambda _: die())


def dies_after(owner: Any, name: str, times: int = 1) -> None:
    """Replace owner.name: the process dies when its `times`-th call has returned."""
    _replace(owner, name, times, lambda call: (call(), die()))


def _replace(owner: Any, name: str, times: int, last: Callable[[Callable[[], Any]], Any]) -> None:
    real: Callable[..., Any] = getattr(owner, name)
    left = [times]

    def dying(*args: Any, **more: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            return last(lambda: real(*args, **more))
        return real(*args, **more)

    setattr(owner, name, dying)


# Calls of pyarrow and os, and two methods of LogTable. A new table takes one link, four fsyncs.
STEPS: dict[str, Callable[[], None]] = {
    "none": lambda: None,
    "table half created": lambda: dies_before(os, "link"),
    "table created, nothing planned": lambda: dies_after(LogTable, "create"),
    "before the file": lambda: dies_before(pq, "ParquetWriter"),
    "half a file": lambda: dies_before(pq.ParquetWriter, "write_table", times=2),
    "file whole, not durable": lambda: dies_before(os, "fsync", times=5),
    "file durable": lambda: dies_after(os, "fsync", times=6),
    "file checked": lambda: dies_after(pq, "read_metadata"),
    "before the commit": lambda: dies_before(os, "link", times=2),
    "after the commit": lambda: dies_after(os, "link", times=2),
    "commit seen": lambda: dies_after(LogTable, "refresh"),
}


def main(folder: str, step: str, offsets_max: int) -> None:
    STEPS[step]()
    log, location = filled(), location_at(Path(folder))
    clock, entropy = SystemClock(), SystemEntropy()
    while True:
        ends = ensure_table(location, len(ROWS))
        ranges = plan_ranges(ends, log.bounds(), offsets_max=offsets_max)
        if not ranges:
            break
        facts = tier_range(log.fetch, ranges, location, clock=clock, entropy=entropy)
        commit_facts(location, ranges, [facts] if facts else [], clock=clock)
    print("done", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
