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

from measures import create_topic, delete_topics, python
from peers import HeadwaterPeer, bench_folder
from rich.console import Console
from rich.table import Table
from sdk_work import COLD, COUNTS, WORK

BARS = (
    ("aio send", "aio send, aiokafka", 3.0),
    ("aio send", "aio send, AIOProducer", 1.0),
    ("send", "send, confluent with callback", 1.0),
    ("send", "send, confluent without", 0.6),
    ("send and wait", "send and wait, confluent", 1 / 1.2),
    ("send_table", "send, confluent without", 3.0),
    ("send_table, first of a process", "send, confluent without", 1.5),
    ("async for", "async for, aiokafka", 3.0),
    ("poll", "poll, confluent", 0.8),
    ("poll_arrow", "consume, confluent", 3.0),
)
Figure = tuple[float, float]
"""Records per second, CPU microseconds per record."""


def measured(name: str, bootstrap: str, topic: str, count: int) -> Figure:
    """One run in a process of its own; a short one before, so that no import counts."""
    command = [sys.executable, __file__, "--run", name, bootstrap, topic, str(count)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    seconds, cpu = json.loads(done.stdout.splitlines()[-1])
    return count / seconds, cpu / count * 1e6


def run_one(name: str, bootstrap: str, topic: str, count: int) -> None:
    """In the process of one client."""
    work = WORK[name]
    if name != COLD:
        work(bootstrap, topic, min(count, 5_000))
    began, cpu = time.perf_counter(), time.process_time()
    work(bootstrap, topic, count)
    print(json.dumps([time.perf_counter() - began, time.process_time() - cpu]))


def show(figures: dict[str, Figure], load: float) -> bool:
    """The tables; False when a bar is missed."""
    console = Console()
    table = Table(title="Clients at one broker, 100 B, medians")
    for column in ("work", "k records/s", "us CPU per record"):
        table.add_column(column, justify="left" if column == "work" else "right")
    for name, (rate, cpu) in figures.items():
        table.add_row(name, f"{rate / 1000:,.3g}", f"{cpu:.2f}")
    console.print(table)
    holds = True
    for ours, theirs, bar in BARS:
        if ours not in figures or theirs not in figures:
            continue
        ratio = figures[ours][0] / figures[theirs][0]
        holds &= ratio >= bar
        verdict = "holds" if ratio >= bar else "MISSED"
        console.print(f"{ours} / {theirs}: {ratio:.2f}x (bar {bar:.2g}x) {verdict}")
    console.print(f"Load before the runs: {load:.1f}. Headwater ran on {python()}.")
    return holds


def main() -> int:
    """Measure, show, compare with the bars."""
    parser = argparse.ArgumentParser(description=__doc__, prog="make bench-sdk")
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", action="append", choices=WORK, help="a work to measure")
    parser.add_argument("--run", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        run_one(*options.run[:3], int(options.run[3]))
        return 0
    peer = HeadwaterPeer(bench_folder("sdk"))
    load = os.getloadavg()[0]
    rows: dict[str, list[Figure]] = {name: [] for name in options.only or WORK}
    try:
        peer.start()
        for number in range(options.rounds):
            topic = f"sdk-{number}"
            create_topic(peer, topic, 1)
            if options.only:  # what the works that write would have written
                WORK["send"](peer.bootstrap, topic, options.records)
                WORK["send_table"](peer.bootstrap, topic, COUNTS["send_table"])
            for name in rows:
                count = COUNTS.get(name, options.records)
                rows[name].append(measured(name, peer.bootstrap, topic, count))
            delete_topics(peer, topic)
    finally:
        peer.stop()
    figures = {
        name: (statistics.median(f[0] for f in found), statistics.median(f[1] for f in found))
        for name, found in rows.items()
    }
    return 0 if show(figures, load) else 1


if __name__ == "__main__":
    sys.exit(main())
