"""Spark's exactly-once writes under a crash at each step of a micro-batch, and under random kills.

    python -m suites.spark_matrix --kinds sink both              # every step x every victim
    python -m suites.spark_matrix --steps before-commit --victims driver broker
    python -m suites.spark_matrix --minutes 15                   # random kills instead
    python -m suites.spark_matrix --plant commit-swallowed       # the judge must catch it
    python -m suites.spark_matrix --missing --seconds 150        # cells that the docs' table lacks

`--write` puts what came of a run into docs/fault-harness.md; a matrix may be run in slices.

A real Spark (local-cluster), three real brokers, real kills. For a cell of the matrix the suite
arms a crash point (`suites/spark_hooks`), feeds rows, waits until a process stands still at the
point, kills the victim, lets the others go on, and waits until every row is in the output. A reader
of committed records reads all the time. `suites.spark_judge` compares all of it at the end.

The table of `both` gets the rows of the crash by MERGE in every other cell (`is_merge`), and by
append in the others; what is written again after a crash is appended. A merge that survives by
mistake is then seen as duplicates, which another merge would hide.
"""

from __future__ import annotations

import argparse
import datetime
import math
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from integration.cluster import LocalCluster
from integration.conftest import next_base_port
from suites import judge, spark_cells, spark_judge
from suites.clusters import BROKERS
from suites.spark_judge import Finding
from suites.spark_pipeline import BOTH, KINDS, SINK
from suites.spark_query import (
    DRIVER,
    EXECUTORS_MASTER,
    PLACES,
    RECORDS_LOST,
    START_S,
    TASK,
    UNCOMMITTED_READER,
    VICTIMS,
    ZOMBIE,
    QueryUnderTest,
    StuckError,
    Tails,
    hooked,
    master_for,
)

ROWS = 200
REACH_S = 240.0
QUIET_S = 0.7
KILLS_EVERY_S = (2.0, 12.0)
STEPS: dict[str, tuple[str, ...]] = {
    SINK: (
        "before-join", "mid-write", "after-flush", "before-commit", "after-record",
        "between-markers", "before-spark-log",
    ),
    BOTH: (
        "before-join", "mid-write", "after-flush", "before-prepare", "after-prepare",
        "before-commit", "after-record", "between-markers", "before-spark-log",
    ),
}  # fmt: skip
UNDECIDED = {
    "before-join", "mid-write", "after-flush", "before-prepare", "after-prepare", "before-commit",
}  # fmt: skip
"""Nothing of the epoch may be readable there."""


class Plant(NamedTuple):
    """A planted bug: the cell that shows it, and what the judge must call it."""

    kind: str
    step: str
    victim: str
    finding: str


PLANTS = {
    "at-least-once": Plant(SINK, "after-flush", DRIVER, spark_judge.DUPLICATE),
    "not-drained": Plant(SINK, "before-spark-log", DRIVER, spark_judge.DUPLICATE),
    "commit-swallowed": Plant(SINK, "before-join", TASK, spark_judge.MISSING),
    "reversed": Plant(SINK, "before-join", TASK, spark_judge.OUT_OF_ORDER),
    UNCOMMITTED_READER: Plant(SINK, "before-commit", TASK, spark_judge.EARLY),
    RECORDS_LOST: Plant(SINK, "before-join", TASK, spark_judge.VANISHED),
    "abort-for-commit": Plant(BOTH, "before-join", TASK, spark_judge.DISAGREEMENT),
    "verdict-ignored": Plant(BOTH, "before-commit", DRIVER, spark_judge.DISAGREEMENT),
}
"""Planted bugs by name."""


class Cell(NamedTuple):
    """A crash: this victim dies while an epoch stands at this step."""

    step: str
    victim: str

    def __str__(self) -> str:
        return f"{self.step} x {self.victim}"


class Row(NamedTuple):
    """The outcome of one cell."""

    cell: Cell
    seconds: float
    findings: tuple[Finding, ...]


def is_merge(kind: str, cell: Cell) -> bool:
    """Whether the rows of the crash are merged into the table: each step and each victim has both
    kinds of writes."""
    number = STEPS[kind].index(cell.step) + VICTIMS.index(cell.victim)
    return kind == BOTH and number % 2 == 1


@contextmanager
def query_under_test(
    kind: str, plant: str = "", master: str = EXECUTORS_MASTER
) -> Iterator[tuple[QueryUnderTest, Tails]]:
    """A cluster and a query of its own, with the first rows in the output."""
    isolation = judge.UNCOMMITTED if plant == UNCOMMITTED_READER else judge.COMMITTED
    with tempfile.TemporaryDirectory(prefix="spark-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / "points").mkdir()
        with (
            mock.patch.dict(os.environ, hooked(folder / "points")),
            LocalCluster(folder / "cluster", next_base_port(folder), BROKERS) as cluster,
            QueryUnderTest(kind, folder, cluster, plant, master) as query,
            Tails(cluster.bootstrap, query.outputs, isolation) as tails,
        ):
            query.feed(ROWS)
            query.wait_for_output(tails, START_S)
            yield query, tails


def crash(query: QueryUnderTest, tails: Tails, cell: Cell) -> list[Finding]:
    """One cell of the matrix: until all rows are in the output again."""
    found: list[Finding] = []
    before = tails.rows()
    query.merge(is_merge(query.kind, cell))
    query.points.arm(cell.step)
    query.feed(ROWS)
    query.wait_for(cell.step, lambda: query.points.reached(cell.step) is not None, REACH_S)
    if cell.step in UNDECIDED:
        time.sleep(QUIET_S)
        new = sorted(tails.rows() - before)
        if new:
            found.append(Finding(spark_judge.EARLY, f"{cell}: {len(new)} rows, {new[:3]}"))
    holder = query.points.reached(cell.step)
    assert holder is not None
    back = query.strike(cell.victim, holder)
    query.points.release(cell.step)
    query.merge(False)
    back()
    query.feed(ROWS // 2)
    query.wait_for_output(tails)
    if cell.victim == ZOMBIE:
        query.feed(ROWS // 2)  # at the latest these make it meet the run that replaced it
        found += query.wake_zombie()
        query.wait_for_output(tails)
    return found


def missing_output(query: QueryUnderTest, tails: Tails) -> list[Finding]:
    """Wait until every row is in the output; the finding if they do not come."""
    try:
        query.wait_for_output(tails)
    except StuckError as error:
        return [Finding(spark_judge.STUCK, str(error))]
    return []


def matrix(
    kind: str,
    cells: Sequence[Cell],
    plant: str = "",
    seconds: float = math.inf,
    report: Callable[[Row], None] = lambda _row: None,
) -> list[Row]:
    """Run cells one after the other on one query (in a Spark that the first one's victim exists
    in), and judge the whole output after each; a row for
    each, also to `report`. It ends with the first cell that is not exact, as its output is the
    start of the next one. After so many seconds no cell begins."""
    rows: list[Row] = []
    end = time.monotonic() + seconds
    with query_under_test(kind, plant, master_for(cells[0].victim)) as (query, tails):
        query.wake_plant()
        for cell in cells:
            started = time.monotonic()
            if started > end:
                break
            try:
                found = crash(query, tails, cell)
            except StuckError as error:
                found = [Finding(spark_judge.STUCK, str(error))]
            took = time.monotonic() - started
            query.lose_records()
            rows.append(Row(cell, took, (*found, *query.judged(tails))))
            print(f"{kind:5} {cell!s:34} {took:5.1f} s  {_words(rows[-1].findings)}", flush=True)
            report(rows[-1])
            if rows[-1].findings:
                break
        print(
            f"{kind}: {len(rows)} crashes, {query.restarts + query.restarts_inside()} restarts "
            f"after a failure, {query.count} rows in, {len(query.points.commits())} epochs, "
            f"{len(cells) - len(rows)} cells left out",
            flush=True,
        )
    return rows


def random_kills(kind: str, minutes: float, seed: int, is_written: bool = False) -> list[Finding]:
    """Kills of random victims at random moments, while rows flow."""
    chance = random.Random(seed)
    kills: dict[str, int] = {}
    with query_under_test(kind) as (query, tails):
        end = time.monotonic() + minutes * 60
        while time.monotonic() < end:
            pause = time.monotonic() + chance.uniform(*KILLS_EVERY_S)
            while time.monotonic() < pause:
                query.feed(20)
                query.restarts += query.program.restart_if_ended()
                time.sleep(0.2)
            victim = chance.choice([v for v in VICTIMS if v != ZOMBIE])
            query.strike(victim, 0)()
            kills[victim] = kills.get(victim, 0) + 1
        findings = [*missing_output(query, tails), *query.judged(tails)]
        said = (
            f"{sum(kills.values())} kills ("
            + ", ".join(f"{count} x {victim}" for victim, count in sorted(kills.items()))
            + f"), {query.restarts + query.restarts_inside()} restarts after a"
            f" failure, {query.count} rows: "
        )
        print(f"{kind}, seed {seed}: {said}{_words(findings)}", flush=True)
        if is_written:
            kinds = ", ".join(sorted({finding.kind for finding in findings}))
            day = datetime.date.today().isoformat()
            run = f"`--kinds {kind} --minutes {minutes:g} --seed {seed}`"
            spark_cells.write_lines({run: f"{said}{f'**{kinds}**' if kinds else 'exact'} ({day})"})
    return findings


def caught(plant: str) -> list[str]:
    """What the judge says of a planted bug; nothing: it is missed, or called something else."""
    kind, step, victim, wanted = PLANTS[plant]
    (row,) = matrix(kind, [Cell(step, victim)], plant)
    kinds = sorted({finding.kind for finding in row.findings} - {spark_judge.STUCK})
    is_caught = wanted in kinds
    words = f"caught: {kinds}" if is_caught else f"MISSED: {kinds}, not {wanted}"
    print(f"{plant}: {words}", flush=True)
    return kinds if is_caught else []


def _plants(names: Sequence[str], *, is_written: bool) -> int:
    found = {plant: caught(plant) for plant in names}
    if is_written:
        day = datetime.date.today().isoformat()
        spark_cells.write_lines(
            {
                f"`--plant {plant}`": f"{'found: ' + ', '.join(kinds) if kinds else '**missed**'}"
                f" ({day})"
                for plant, kinds in found.items()
            }
        )
    return 0 if all(found.values()) else 1


def _cells(kind: str, options: argparse.Namespace) -> list[Finding]:
    steps = options.steps or STEPS[kind]
    cells = [Cell(step, v) for v in options.victims for step in steps if step in STEPS[kind]]
    if options.missing:
        page = spark_cells.PAGE.read_text()
        known = spark_cells.parsed(spark_cells.block_of(page, spark_cells.CELLS.format(kind=kind)))
        cells = [cell for cell in cells if cell not in known]
        print(f"{kind}: {len(cells)} cells are missing", flush=True)

    def report(row: Row) -> None:
        if options.write:
            words = spark_cells.outcome(row.findings, row.seconds, datetime.date.today())
            spark_cells.write_cells(kind, STEPS[kind], VICTIMS, {tuple(row.cell): words})

    findings: list[Finding] = []
    end = time.monotonic() + options.seconds
    for place in PLACES:
        left = [cell for cell in cells if master_for(cell.victim) == place]
        while left and time.monotonic() < end:
            rows = matrix(kind, left, seconds=end - time.monotonic(), report=report)
            findings += [finding for row in rows for finding in row.findings]
            left = left[len(rows) :]
    return findings


def _words(findings: Sequence[Finding]) -> str:
    return "; ".join(map(str, findings)) or "exact"


def main(arguments: Iterable[str]) -> int:
    """Run what the arguments name; 1 when an output is not exact, or a planted bug is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--steps", nargs="+", help="of the matrix; all by default")
    parser.add_argument("--victims", nargs="+", choices=VICTIMS, default=VICTIMS)
    parser.add_argument("--seconds", type=float, default=math.inf, help="then no cell begins")
    parser.add_argument("--minutes", type=float, help="random kills for so long")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--missing", action="store_true", help="only cells that the docs lack")
    parser.add_argument("--write", action="store_true", help="put the outcomes into the docs")
    parser.add_argument("--plant", nargs="+", choices=PLANTS, help="bugs that must be caught")
    options = parser.parse_args(list(arguments))
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    if options.plant:
        return _plants(options.plant, is_written=options.write)
    findings: list[Finding] = []
    for kind in options.kinds:
        if options.minutes:
            findings += random_kills(kind, options.minutes, options.seed, options.write)
        else:
            findings += _cells(kind, options)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
