"""Benches of scale, each figure against its bar: `make bench-scale`.

    start       a clean restart with 100 partitions, from the process's birth to a ready `/health`
    topics      1,000 topics on three brokers: one per request, and all in one
    partitions  10,000 partitions on three brokers: created, led, used, idle, one broker back
    failover    2,000 partitions, `kill -9` of the controller
    flat        appends and fetches at random offsets: a log of 50 GB beside one of 1 GB
    parked      requests per second with 100,000 parked fetches and without

Exit 1 when a bar is missed. `--only NAME` (repeatable) runs some of them.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable

import scale_controller
import scale_log
import scale_parked
import scale_start
from rich.console import Console
from rich.table import Table
from scale_cluster import Reading

PARTS: dict[str, Callable[[], list[Reading]]] = {
    "start": scale_start.measure,
    "topics": scale_controller.topics,
    "partitions": scale_controller.partitions,
    "failover": scale_controller.failover,
    "flat": scale_log.measure,
    "parked": scale_parked.measure,
}


def show(rows: list[Reading], *, as_json: bool) -> None:
    """The table for people, or JSON."""
    if as_json:
        print(json.dumps([row.describe() for row in rows], indent=2))
        return
    table = Table(title="Headwater at scale, on this machine")
    for column in ("what", "figure", "bar", "", "beside it"):
        table.add_column(column, justify="right" if column in ("figure", "bar") else "left")
    for row in rows:
        bar = "" if row.bar is None else f"<= {row.bar:,g} {row.unit}"
        verdict = "" if row.bar is None else "met" if row.is_met else "MISSED"
        table.add_row(row.what, f"{row.figure:,.4g} {row.unit}", bar, verdict, row.beside)
    Console().print(table)


def main() -> int:
    """Run what is asked for, print the table, say which bars are met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", choices=tuple(PARTS), help="these parts")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    console = Console(stderr=True)
    rows: list[Reading] = []
    for name, measure in PARTS.items():
        if name in (options.only or PARTS):
            console.print(f"{name} ...")
            found = measure()
            rows += found
            show(found, as_json=False) if options.only is None else None
    show(rows, as_json=options.json)
    return 0 if all(row.is_met for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
