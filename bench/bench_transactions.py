"""Transactions on Headwater and on Apache Kafka, same box, by turns: `make bench-transactions`.

    raw      transactions of 10 records as prepared frames (the server is the bound): 1 and 10
             partitions, 1 and 16 producers; and with an offset of a group in each (KIP-447)
    stock    the same with confluent-kafka
    offsets  a stock copier's loop: produce, send_offsets_to_transaction, commit
    latency  from the begin of a transaction to its last record at a read_committed consumer
    ids      100,000 open transactional ids: memory, and load time at a restart

Data is in memory, as the server is the bound and not the disk. Ratios are taken pair by pair, and
their median is held against the bar. Exit 1 when a bar is missed. `--alone kafka` measures one side
and prints its figures.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
from collections.abc import Callable
from functools import partial

import open_transactions
import stock_transactions
from bench_kafka import Bench
from measures import Bar, Figure, Peer, compare, show
from peers import bench_folder
from raw_transactions import run_raw
from rich.console import Console

PARTS = ("raw", "stock", "offsets", "latency", "ids")
SHAPES = ((1, 1), (10, 1), (1, 16), (10, 16))
"""(partitions, producers)."""
COPIERS = (1, 16)
RATE_BAR = Bar(2.0)
P50_BAR = Bar(1 / 0.7)
P99_BAR = Bar(1.0)
TITLE = "Transactions on Headwater and Apache Kafka 4.3, same box, alternating, medians"
Figures = tuple[Figure, ...]
Run = Callable[..., Figures]
"""(peer, seconds=...) -> the figures of one run."""


class Transactions:
    """Runs the parts on both clusters, or on one of them."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.bench = Bench(options, bench_folder("transactions"), 1)
        self.peers: list[Peer] = [p for p in self.bench.peers if options.alone in (None, p.name)]
        self._console = Console(stderr=True)

    def raw(self) -> None:
        """Prepared frames, without and with an offset in each transaction."""
        for partitions, producers in SHAPES:
            self._rate(
                f"raw, {_counted(partitions, 'partition')}, {_counted(producers, 'producer')}",
                partial(run_raw, producers=producers, partitions=partitions),
            )
        for producers in COPIERS:
            self._rate(
                f"raw with an offset, {_counted(producers, 'producer')}",
                partial(run_raw, producers=producers, partitions=1, offsets=True),
            )

    def stock(self) -> None:
        """confluent-kafka."""
        for partitions, producers in SHAPES:
            self._rate(
                f"stock, {_counted(partitions, 'partition')}, {_counted(producers, 'producer')}",
                partial(stock_transactions.rate, producers=producers, partitions=partitions),
            )

    def offsets(self) -> None:
        """A stock copier, and sixteen of them."""
        for producers in COPIERS:
            self._rate(
                f"stock send_offsets_to_transaction, {_counted(producers, 'copier')}",
                partial(stock_transactions.send_offsets, producers=producers),
            )

    def latency(self) -> None:
        """p50 and p99 come from the same runs."""
        names = [f"1 / latency {share}, stock, 10 records" for share in ("p50", "p99")]
        self._measure(names, stock_transactions.latency, [P50_BAR, P99_BAR])

    def ids(self) -> None:
        """Once on each side: the ids stay in the broker."""
        for peer in self.peers:
            found = open_transactions.measure(peer, self.options.ids)
            self._console.print(f"{peer.name}: {found}")

    def _rate(self, name: str, run: Callable[..., Figure]) -> None:
        def figures(peer: Peer, seconds: float) -> Figures:
            return (run(peer, seconds=seconds),)

        self._measure([name], figures, [RATE_BAR])

    def _measure(self, names: list[str], run: Run, bars: list[Bar]) -> None:
        """A row per figure of a run; of one side alone, its median."""
        warm = partial(run, seconds=self.options.warmup)
        measured = partial(run, seconds=self.options.seconds)
        if len(self.peers) == 1:
            warm(self.peers[0])
            rounds = [measured(self.peers[0]) for _ in range(self.options.rounds)]
            for name, found in zip(names, zip(*rounds, strict=True), strict=True):
                rate = statistics.median(f.rate for f in found)
                cpu = statistics.median(f.cpu_per_million for f in found)
                self._console.print(f"{name}: {rate:,.1f}/s, {cpu:,.0f} us of CPU each")
            return
        pairs = self.bench.by_turns(names[0], warm, measured, 1)
        for at, (name, bar) in enumerate(zip(names, bars, strict=True)):
            found = [(theirs[at], ours[at]) for theirs, ours in pairs]
            self.bench.rows.append(compare(name, found, bar))


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" + "s" * (number > 1)


def main() -> int:
    """Run what is asked for, print the table, say which bars hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="pairs per workload")
    parser.add_argument("--seconds", type=float, default=4.0, help="length of one run")
    parser.add_argument("--warmup", type=float, default=8.0, help="seconds per workload, each")
    parser.add_argument("--ids", type=int, default=open_transactions.IDS)
    parser.add_argument("--only", action="append", choices=PARTS, help="these parts")
    parser.add_argument("--alone", choices=("kafka", "headwater"), help="measure one side")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    work = Transactions(options)
    try:
        for peer in work.peers:
            peer.start()
        for part in PARTS:
            if part in (options.only or PARTS):
                getattr(work, part)()
    finally:
        for peer in work.peers:
            if peer.pids:
                peer.stop()
        shutil.rmtree(work.bench.folder, ignore_errors=True)
    rows = work.bench.rows
    if rows:
        show(rows, {}, as_json=options.json, title=TITLE)
    return 0 if all(row["holds"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
