"""Tables of many files: opening one with 20,000, and what a day of trickle leaves."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from deltalake import DeltaTable

from headwater.system import SystemEntropy
from headwater.testing.clocks import ManualClock
from headwater_tier.commit_fence import ColumnStats, FileFacts
from headwater_tier.compaction import DAY_MS, L1_BYTES_TARGET, plan_fold
from headwater_tier.delta import Change, LogTable
from headwater_tier.live_files import LiveFile
from headwater_tier.reader import TableReader
from headwater_tier.table_names import TableLocation, data_file, table_uri

FILES = 20_000
FILES_A_COMMIT = 1_000
FILE_ROWS = 10
TOPIC, TOPIC_ID = "many", UUID(int=7)
OPENINGS = 9
TRICKLE_BYTES, TRICKLE_MS = 6_000, 3_000
"""A commit of a trickling topic, at the service's default interval."""


def many_files(folder: Path) -> TableLocation:
    """A table's log with FILES files of one partition, and its checkpoint. The files do not exist:
    opening looks at none."""
    location = TableLocation(table_uri(folder.as_uri(), TOPIC, TOPIC_ID), TOPIC, TOPIC_ID)
    table, offset = LogTable.create(location, 1), 0
    for _ in range(FILES // FILES_A_COMMIT):
        adds = []
        for _ in range(FILES_A_COMMIT):
            last = offset + FILE_ROWS - 1
            stats = {"partition": (0, 0), "offset": (offset, last), "timestamp": (10**15, 10**15)}
            columns = tuple((name, ColumnStats(*bounds, 0)) for name, bounds in stats.items())
            ranges = ((0, offset, last, FILE_ROWS),)
            path = data_file(0, uuid4())
            adds.append(FileFacts(path, 3_000, FILE_ROWS, 10**12, ranges, columns))
            offset = last + 1
        table.commit(Change("tier", 10**12, adds=adds, ends={0: offset}))
        table.refresh()
    DeltaTable(location.uri).create_checkpoint()
    return location


def bench_opening(folder: Path) -> dict[str, Any]:
    """Open it as a broker's reader does before its first fetch, and find an offset's file."""
    location, found = many_files(folder / "many"), []
    for number in range(OPENINGS + 1):
        start = time.monotonic()
        reader = TableReader(location)
        held = reader.holders(0, number * 1_000)
        found.append(time.monotonic() - start)
        if held != 1:
            raise RuntimeError(f"{held} files may hold offset {number * 1_000}")
    found = found[1:]  # the first one loads libraries
    return {
        "work": f"opening a table of {FILES:,} files, ms",
        "found": round(1000 * statistics.median(found)),
        "bar": 100,
        "more": f"longest {1000 * max(found):.0f}",
    }


def bench_day(_folder: Path) -> dict[str, Any]:
    """The files that 24 simulated hours of small commits leave, by the plan of folds."""
    clock = ManualClock(20_000 * DAY_MS)
    files: list[LiveFile] = []
    entropy, end, total, most = SystemEntropy(), clock.now_ms() + DAY_MS, 0, 0

    def add(size_bytes: int, level: int, first: int, last: int) -> None:
        path, now = data_file(level, entropy.uuid()), clock.now_ms()
        files.append(LiveFile(path, size_bytes, 1, now, 0, 0, first, last))

    while clock.now_ms() < end:
        add(TRICKLE_BYTES, 0, total, total)
        total += TRICKLE_BYTES
        clock.advance(TRICKLE_MS)
        while chosen := plan_fold(files, clock.now_ms()):
            gone = {file.path for file in chosen}
            files = [file for file in files if file.path not in gone]
            ends = [file.max_offset or 0 for file in chosen]
            add(sum(file.size_bytes for file in chosen), 1, min(ends), max(ends))
        most = max(most, len(files))
    ideal = -(-total // L1_BYTES_TARGET)
    return {
        "work": "files after 24 simulated hours of trickle / ideal",
        "found": round(len(files) / ideal, 2),
        "bar": 2.0,
        "more": f"{len(files)} files, ideal {ideal}, at most {most} in between",
    }
