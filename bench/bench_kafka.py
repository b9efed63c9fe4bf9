"""Headwater against Apache Kafka on this box, alternating, warm: `make bench-kafka`.

Raw: prepared frames from a C generator, so that the server is the bound. Stock: confluent-kafka
clients, where the client is the bound and the server's CPU per record is what counts; end-to-end
latency (given as its inverse); 1,000 partitions; three brokers with acks=all, and new topics on
them. Every pair is measured back to back on the same file system: raw frames in memory, so that no
disk is the bound, clients on the disk, as theirs would be. With one broker each, the one that is
not measured is stopped meanwhile (SIGSTOP): an idle JVM broker takes a twentieth of a core. Ratios
are taken pair by pair and the median is held against the bar. Exit 1 when a bar is missed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import raw_frames
import stock_clients
from measures import Bar, Figure, Peer, compare, show
from peers import HeadwaterPeer, KafkaPeer, bench_folder, rss_megabytes
from rich.console import Console

RAW = ("raw",)
"""With one broker each; data in memory, as the server is the bound and not the disk."""
CLIENTS = ("stock", "consumer", "latency", "partitions")
"""With one broker each, after a heat of raw frames."""
TRIOS = ("replicated", "topics")
"""With three, on the disk."""
PARTS = (*RAW, *CLIENTS, *TRIOS)
HEAT = (raw_frames.WORK[0], raw_frames.WORK[1], raw_frames.WORK[3])
TRIO = 3
"""So many brokers, and copies on them."""
LATENCY_RATES = (1_000, 20_000)
LATENCY_PAIRS = 4
"""Pairs per round: one other program that wakes up moves a p99 more than it moves a rate."""
STOCK_PAIRS = 2
"""Likewise: CPU time per record of a client-bound run is known to a tenth by a pair."""
P50_BAR = Bar(1 / 0.8)
P99_BAR = Bar(1 / 0.5)
SETTLE_S = 0.5
"""After a stop a server looks first whom it owes what."""
Row = dict[str, object]
T = TypeVar("T")


class Bench:
    """Both clusters, and what was measured on them."""

    def __init__(self, options: argparse.Namespace, folder: Path, brokers: int) -> None:
        self.options = options
        self.folder = folder
        self.kafka = KafkaPeer(folder / "kafka", brokers)
        self.headwater = HeadwaterPeer(folder / "headwater", brokers)
        self.rows: list[Row] = []
        self.memory: dict[str, float] = {}
        self._console = Console(stderr=True)

    @property
    def peers(self) -> tuple[Peer, Peer]:
        """Kafka first, as in every pair."""
        return self.kafka, self.headwater

    def heat(self) -> None:
        """Raw frames, until a JIT has compiled what stock clients will need."""
        self._console.print("heat: raw frames")
        for peer in self.peers:
            for work in HEAT:
                frames = self.folder / "frames"
                raw_frames.run_raw(peer, work, self.options.warmup, frames)

    def weigh(self, when: str) -> None:
        """Remember the first server's resident memory."""
        for peer in self.peers:
            self.memory[f"{peer.name} {when}"] = rss_megabytes(peer.pids[0])

    def by_turns(self, name: str, warm: Callable[[Peer], object], run: Callable[[Peer], T],
                 pairs: int) -> list[tuple[T, T]]:  # fmt: skip
        """Warm both, then measure by turns, so many pairs in each round."""
        rounds = pairs * self.options.rounds
        self._console.print(f"{name}: warm-up, then {rounds} pairs")
        for peer in self.peers:
            with self._alone(peer):
                warm(peer)
        found = []
        for _ in range(rounds):
            with self._alone(self.kafka):
                theirs = run(self.kafka)
            with self._alone(self.headwater):
                found.append((theirs, run(self.headwater)))
        return found

    @contextmanager
    def _alone(self, peer: Peer) -> Iterator[None]:
        """The other server stands still. Not so with three: they would elect anew afterwards."""
        other = self.headwater if peer is self.kafka else self.kafka
        pids = other.pids if len(other.pids) == 1 else []
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
            time.sleep(SETTLE_S)

    def pairs(self, name: str, warm: Callable[[Peer], object], run: Callable[[Peer], Figure],
              bar: Bar, pairs: int = 1) -> None:  # fmt: skip
        """A row of what was measured by turns."""
        self.rows.append(compare(name, self.by_turns(name, warm, run, pairs), bar))

    def raw(self) -> None:
        """Prepared frames."""
        frames, options = self.folder / "frames", self.options
        for work in raw_frames.WORK:
            run = partial(raw_frames.run_raw, work=work, frames=frames)
            warm = partial(run, seconds=options.warmup)
            self.pairs(work.name, warm, partial(run, seconds=options.seconds), work.bar)

    def stock(self) -> None:
        """One stock producer."""
        run = stock_clients.produce
        self.pairs("stock librdkafka, 100 B", run, run, Bar(1.0, 0.5), STOCK_PAIRS)

    def consumer(self) -> None:
        """Kafka's own consumer, as its performance tool runs it."""
        run = stock_clients.consume
        self.pairs("kafka-consumer-perf-test.sh, 100 B", run, run, Bar(1.0, 0.5), STOCK_PAIRS)

    def partitions(self) -> None:
        """One stock producer over 1,000 partitions."""
        run = partial(stock_clients.produce, partitions=stock_clients.MANY_PARTITIONS)
        self.pairs("stock librdkafka, 1,000 partitions", run, run, Bar(1.0))

    def replicated(self) -> None:
        """One stock producer to three brokers, three copies, acks=all."""
        run = partial(stock_clients.produce, copies=TRIO)
        self.pairs("stock librdkafka, 3 copies, acks=all", run, run, Bar(1.5))

    def topics(self) -> None:
        """New topics on three brokers, one per request."""
        run = partial(stock_clients.create_topics, copies=TRIO)
        self.pairs("topics created, one per request, 3 brokers", run, run, Bar(1.0))

    def latency(self) -> None:
        """End to end at a pace; p50 and p99 come from the same runs."""
        for rate in LATENCY_RATES:
            run = partial(stock_clients.latency, records_per_s=rate)
            found = self.by_turns(f"latency at {rate:,}/s", run, run, LATENCY_PAIRS)
            for at, name, bar in ((0, "p50", P50_BAR), (1, "p99", P99_BAR)):
                pairs = [(k[at], h[at]) for k, h in found]
                self.rows.append(compare(f"1 / latency {name}, {rate:,} records/s", pairs, bar))


def run_parts(options: argparse.Namespace, group: tuple[str, ...], parts: list[str]) -> Bench:
    """Start both clusters, run these parts of a group, stop them."""
    brokers = TRIO if group is TRIOS else 1
    folder = bench_folder(f"kafka-{brokers}", on_disk=group is not RAW)
    bench = Bench(options, folder, brokers)
    try:
        for peer in bench.peers:
            peer.start()
        bench.weigh("idle")
        if group is CLIENTS:
            bench.heat()
        for part in parts:
            getattr(bench, part)()
        bench.weigh("after load")
    finally:
        for peer in bench.peers:
            if peer.pids:
                peer.stop()
        shutil.rmtree(bench.folder, ignore_errors=True)
    return bench


def main() -> int:
    """Run what is asked for, print the table, say which bars hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="pairs per workload")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of one raw run")
    parser.add_argument("--warmup", type=float, default=8.0, help="seconds per raw workload, each")
    parser.add_argument("--only", action="append", choices=PARTS, help="these parts")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows: list[Row] = []
    memory: dict[str, float] = {}
    for group in (RAW, CLIENTS, TRIOS):
        wanted = [part for part in group if part in (options.only or group)]
        if wanted:
            bench = run_parts(options, group, wanted)
            rows += bench.rows
            memory = memory or bench.memory
    show(rows, memory, as_json=options.json)
    return 0 if all(row["holds"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
