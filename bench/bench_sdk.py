"""The SDK beside confluent-kafka and aiokafka, at one broker of ours: `make bench-sdk`.

Records of 100 bytes, one partition, acks=all, lingering 5 ms. Each client runs in a process of its
own, turn by turn; the median of the rounds counts. Exit 1 when a bar is missed. CPU is the client's
own, of all its threads.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

from measures import create_topic, python
from peers import HeadwaterPeer, bench_folder
from rich.console import Console
from rich.table import Table
from sdk_work import WORK

BARS = (
    ("aio send", "aio send, aiokafka", 3.0),
    ("aio send", "aio send, AIOProducer", 1.0),
    ("send", "send, confluent with callback", 1.0),
    ("async for", "async for, aiokafka", 3.0),
    ("poll", "poll, confluent", 0.8),
)
TOPIC = "sdk"
Figure = tuple[float, float]
"""Records per second, CPU microseconds per record."""


def measured(name: str, bootstrap: str, count: int) -> Figure:
    """One run in a process of its own; a short one before, so that no import counts."""
    command = [sys.executable, __file__, "--run", name, bootstrap, str(count)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    seconds, cpu = json.loads(done.stdout.splitlines()[-1])
    return count / seconds, cpu / count * 1e6


def run_one(name: str, bootstrap: str, count: int) -> None:
    """In the process of one client."""
    work = WORK[name]
    work(bootstrap, TOPIC, min(count, 5_000))
    began, cpu = time.perf_counter(), time.process_time()
    work(bootstrap, TOPIC, count)
    print(json.dumps([time.perf_counter() - began, time.process_time() - cpu]))


def show(figures: dict[str, Figure], load: float) -> bool:
    """The tables; False when a bar is missed."""
    console = Console()
    table = Table(title="Clients at one broker, 100 B, medians")
    for column in ("work", "k records/s", "us CPU per record"):
        table.add_column(column, justify="left" if column == "work" else "right")
    for name, (rate, cpu) in figures.items():
        table.add_row(name, f"{rate / 1000:,.0f}", f"{cpu:.2f}")
    console.print(table)
    holds = True
    for ours, theirs, bar in BARS:
        ratio = figures[ours][0] / figures[theirs][0]
        holds &= ratio >= bar
        verdict = "holds" if ratio >= bar else "MISSED"
        console.print(f"{ours} / {theirs}: {ratio:.2f}x (bar {bar:g}x) {verdict}")
    console.print(f"Load before the runs: {load:.1f}. Headwater ran on {python()}.")
    return holds


def main() -> int:
    """Measure, show, compare with the bars."""
    parser = argparse.ArgumentParser(description=__doc__, prog="make bench-sdk")
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--run", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        run_one(options.run[0], options.run[1], int(options.run[2]))
        return 0
    peer = HeadwaterPeer(bench_folder("sdk"))
    load = os.getloadavg()[0]
    rows: dict[str, list[Figure]] = {name: [] for name in WORK}
    try:
        peer.start()
        create_topic(peer, TOPIC, 1)
        for _ in range(options.rounds):
            for name in WORK:
                rows[name].append(measured(name, peer.bootstrap, options.records))
    finally:
        peer.stop()
    figures = {
        name: (statistics.median(f[0] for f in found), statistics.median(f[1] for f in found))
        for name, found in rows.items()
    }
    return 0 if show(figures, load) else 1


if __name__ == "__main__":
    sys.exit(main())
