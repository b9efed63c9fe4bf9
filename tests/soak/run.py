"""`make soak`: faults on a real cluster under a recorded workload, then a check of the history.

    python -m soak.run --minutes 30 --seed 1

The seed decides the order of the faults, how long each lasts and which overlap. Their victims
depend on the leaders at that moment. Exit code 1 on any anomaly.
"""

from __future__ import annotations

import argparse
import logging
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from soak import network, replicas
from soak.checker import check
from soak.faults import KINDS, FaultKind, Injected
from soak.history import History, read
from soak.pauses import Pauses, longest_gap_s
from soak.report import print_findings
from soak.transactions import COPIED, PARTITIONS, TRANSACTED, TransactionLoad
from soak.workload import Load
from soak.world import WHOLE_S, NotNowError, World, build

BASE_PORT = 24_500
OVERLAP_CHANCE = 0.65
OVERLAP_WAIT_S = (0.0, 1.5)
RESUME_ACKS = 25
RESUME_S = 30.0
RECOVER_ACKS = 3
RECOVER_S = 60.0
FIRST_ACKS = 20


@dataclass(slots=True)
class Counts:
    """Counts of injected faults."""

    injected: Counter[str] = field(default_factory=Counter)
    not_now: Counter[str] = field(default_factory=Counter)
    skipped: dict[str, str] = field(default_factory=dict)
    """Kinds that are not possible here, with the reason."""


class Schedule:
    """Draws faults from a shuffled deck until the end of the run."""

    def __init__(self, world: World, load: Load, seed: int, only: list[str]) -> None:
        self.world, self.load = world, load
        self.counts = Counts()
        self.pauses = Pauses()
        self._random = random.Random(seed)
        self._kinds = choose_kinds(world, only, self.counts)
        self._deck: list[FaultKind] = []

    def run(self, seconds: float) -> None:
        """Rounds of one fault or two, each followed by a recovery."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.round()

    def _draw(self) -> FaultKind:
        if not self._deck:
            self._deck = [kind for kind in self._kinds for _ in range(kind.share)]
            self._random.shuffle(self._deck)
        return self._deck.pop()

    def round(self) -> None:
        """Inject, hold, heal, recover. Raises Stuck when the cluster does not go on."""
        kind = self._draw()
        hold_s = self._random.uniform(*kind.hold_s)
        overlaps = self._random.random() < OVERLAP_CHANCE and not kind.alone
        wait_s = self._random.uniform(*OVERLAP_WAIT_S)
        if kind.alone:
            self._make_whole()
        running = [self._inject(kind)]
        if overlaps and running[0] is not None:
            time.sleep(wait_s)
            other = self._draw()
            if other.alone:
                self._deck.insert(0, other)
            else:
                running.append(self._inject(other))
                hold_s = max(hold_s, self._random.uniform(*other.hold_s))
        if kind.pause_bar_s is not None and running[0] is not None:
            self._measure(kind, running[0])
        time.sleep(hold_s)
        self._random.shuffle(running)
        for one in running:
            if one is not None:
                self._heal(one)
        self.world.wait_ready()
        if left := self.load.silent(RECOVER_ACKS, range(self.world.partitions), RECOVER_S):
            raise Stuck(f"no writes to partitions {left} within {RECOVER_S:.0f} s of healing")

    def _inject(self, kind: FaultKind) -> Injected | None:
        try:
            injected = kind.inject(self.world)
        except NotNowError:
            self.counts.not_now[kind.name] += 1
            return None
        self.world.taken |= injected.parts
        self.counts.injected[kind.name] += 1
        self._tell(f"inject {kind.name}: {injected.target}")
        return injected

    def _heal(self, injected: Injected) -> None:
        injected.heal()
        self.world.taken -= injected.parts
        self._tell(f"healed {injected.target}")

    def _tell(self, what: str) -> None:
        self.world.history.add("fault", what=what)
        print(f"{self.world.history.now():8.1f}  {what}", flush=True)

    def _make_whole(self) -> None:
        """Wait until all replicas are in sync and leaders are balanced, for a fault that needs
        it."""
        if not self.world.wait_whole(WHOLE_S):
            raise Stuck(f"not every replica is in sync {WHOLE_S:.0f} s after healing")
        try:
            self.world.ask(lambda admin: admin.elect_leaders("preferred"))
        except NotNowError as error:
            self._tell(f"no preferred election: {error}")

    def _measure(self, kind: FaultKind, injected: Injected) -> None:
        """Measure the write pause of a kill in the partitions that the victim led."""
        if left := self.load.silent(RESUME_ACKS, injected.led, RESUME_S):
            why = f"no writes to partitions {left} within {RESUME_S:.0f} s"
            raise Stuck(f"{why} of {kind.name} of {injected.target}")
        until = time.monotonic()
        gap_s = longest_gap_s(self.load.acks, injected.led, injected.since, until)
        self.pauses.seconds[kind.name].append(gap_s)
        self._tell(f"{kind.name}: writes paused {gap_s:.2f} s")


class Stuck(Exception):  # noqa: N818 - the report says "stuck"
    """The cluster does not go on."""


def choose_kinds(world: World, only: list[str], counts: Counts) -> list[FaultKind]:
    """The requested kinds that are possible here; the others are counted as skipped."""
    chosen = []
    for kind in KINDS:
        if only and kind.name not in only:
            continue
        if kind.needs == "network" and world.network is None:
            counts.skipped[kind.name] = "no network namespaces"
        elif kind.needs == "mount" and not world.mounted:
            counts.skipped[kind.name] = "no mount namespace"
        else:
            chosen.append(kind)
    return chosen


def parse(words: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=None, help="default: chosen, and printed")
    parser.add_argument("--only", action="append", default=[], choices=[k.name for k in KINDS])
    parser.add_argument("--rate", type=float, default=15.0, help="records/s by producer, partition")
    parser.add_argument("--out", type=Path, default=None, help="keep history and logs here")
    parser.add_argument("--plant", default="", help="a known bug in a broker: NAME:BROKER")
    parser.add_argument("--base-port", type=int, default=BASE_PORT)
    return parser.parse_args(words)


def main(words: list[str]) -> int:
    """Run, check, report; returns 1 on any anomaly."""
    options = parse(words)
    why_no_network = network.enter("soak.run", words)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends the cluster, as Ctrl-C does
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    folder = options.out or Path(tempfile.mkdtemp(prefix="headwater-soak-"))
    folder.mkdir(parents=True, exist_ok=True)
    print(f"soak: seed {seed}, {options.minutes:g} min, history in {folder}", flush=True)
    if why_no_network:
        print(f"no namespaces of our own ({why_no_network})", flush=True)
    form = "%(asctime)s %(levelname)s %(name)s: %(message)s"
    logging.basicConfig(filename=folder / "harness.log", level=logging.INFO, format=form)
    history = History(folder / "history.jsonl")
    stage = build(folder, history, options, seed, why_no_network)
    schedule = soak(stage, options, seed)
    history.close()
    findings = check(read(history.path))
    print_findings(seed, schedule.counts, schedule.pauses, findings, history.path)
    is_clean = not findings.anomalies
    if is_clean and options.out is None:
        shutil.rmtree(folder, ignore_errors=True)
    return 0 if is_clean else 1


def soak(stage: World, options: argparse.Namespace, seed: int) -> Schedule:
    """The run: start the cluster and the clients, inject faults, stop the clients and the
    cluster."""
    with stage.cluster as cluster:
        cluster.create_topic(stage.topic, stage.partitions, 3, min_insync_replicas="2")
        load = Load(
            cluster.bootstrap, stage.topic, stage.partitions, stage.history, options.rate, seed
        )
        schedule = Schedule(stage, load, seed, options.only)
        transactions = start_transactions(stage, seed)
        load.start()
        try:
            if left := load.silent(FIRST_ACKS, range(stage.partitions), RECOVER_S):
                raise Stuck(f"no writes to partitions {left} at the start")
            schedule.run(options.minutes * 60)
        except Stuck as stuck:
            stage.history.add("stuck", why=str(stuck))
            print(f"stuck: {stuck}\n{stage.outline()}", flush=True)
        except Exception as error:  # noqa: BLE001 - what was recorded so far is judged
            traceback.print_exc()
            stage.history.add("stuck", why=f"the harness failed: {error!r}"[:300])
        load.stop()
        transactions.stop()
        replicas.record(stage)
    return schedule


def start_transactions(stage: World, seed: int) -> TransactionLoad:
    """Create the topics of the transactional clients, and start these."""
    for topic in (TRANSACTED, COPIED):
        stage.cluster.create_topic(topic, PARTITIONS, 3, min_insync_replicas="2")
    load = TransactionLoad(stage.cluster.bootstrap, stage.history, seed)
    load.start()
    return load


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
