"""A real Flink job under kills of the job and of brokers; its output against an oracle.

    python -m suites.flink --job-kills 20 --broker-kills 10 --naming POOLING
    python -m suites.flink --kafka               # the same against Apache Kafka
    python -m suites.flink --outage              # longer than the transaction's timeout

The job is jobs/flink/exactly_once.py. A kill is SIGKILL for the whole job (driver, JVM, Python
workers); the next run starts from the newest complete checkpoint. The oracle reads the input topic
and counts the lines of each key: the committed output must hold every line once, with its count.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from suites import judge, parts
from suites.clusters import (
    BROKERS,
    HEADWATER,
    KAFKA,
    ClusterUnderTest,
    create_topic,
    started,
)
from suites.killing import Feeder, KillableProgram, wait_until

NAMINGS = ("INCREMENTING", "POOLING")
JOB = parts.ROOT / "jobs" / "flink" / "exactly_once.py"
SOURCE, SINK = "lines", "counts"
SOURCE_PARTITIONS, SINK_PARTITIONS = 4, 3
KEYS = 20
LINES_PER_S = 200.0
STARTING_S = (2.0, 12.0)
"""How long after its start a job is killed that is to die while it recovers."""
RUNNING_S = (0.0, 3.0)
"""How long after new output a job is killed that is to die at work."""
DIES_RECOVERING = 0.2
BROKER_DOWN_S = (0.5, 4.0)
BETWEEN_BROKERS_S = (1.0, 4.0)
PROGRESS_S = 240.0
DRAIN_S = 300.0
OUTAGE_TIMEOUT_MS = 10_000
OUTAGE_S = 90.0
OUTAGE_LINES = 400
OUTAGE_TRIES = 10
ENDS_S = 300.0
CHECKPOINT_POLL_S = 0.0005
SHOWN_CHARACTERS = 5_000


class Verdict(NamedTuple):
    """The output against the oracle."""

    fed: int
    missing: tuple[str, ...]
    duplicated: tuple[str, ...]
    unexpected: tuple[str, ...]

    @property
    def is_exact(self) -> bool:
        """Every line once, nothing else."""
        return not (self.missing or self.duplicated or self.unexpected)

    def __str__(self) -> str:
        return (
            f"{self.fed} lines, {len(self.missing)} missing, {len(self.duplicated)} duplicated, "
            f"{len(self.unexpected)} unexpected"
        )


def expected(lines: Iterable[str]) -> list[str]:
    """What the job must write for these lines, which are in the order of their partitions."""
    counts: Counter[str] = Counter()
    rows = []
    for line in lines:
        key = line.partition(",")[0]
        counts[key] += 1
        rows.append(f"{line},{counts[key]}")
    return rows


def verdict(lines: Sequence[str], output: Iterable[str]) -> Verdict:
    """Compare the job's output with what it must be."""
    wanted, seen = Counter(expected(lines)), Counter(output)
    return Verdict(
        len(lines),
        tuple(sorted((wanted - seen).elements())),
        tuple(sorted(row for row in wanted if seen[row] > 1)),
        tuple(sorted(row for row in seen if row not in wanted)),
    )


def line(number: int) -> tuple[int, str]:
    """(partition, text) of an input line: a key's lines are all in one partition."""
    key = number * 7 % KEYS
    return key % SOURCE_PARTITIONS, f"k{key},{number}"


class FlinkRun:
    """The job, its topics and its folder of checkpoints."""

    def __init__(self, cluster: ClusterUnderTest, folder: Path, naming: str, *options: str) -> None:
        """`options`: more arguments of the job."""
        self.bootstrap = cluster.bootstrap
        folder.mkdir(parents=True)
        self._folder = folder
        self.checkpoints = folder / "checkpoints"
        create_topic(self.bootstrap, SOURCE, SOURCE_PARTITIONS)
        create_topic(self.bootstrap, SINK, SINK_PARTITIONS)
        command = [
            *(str(parts.flink_python()), str(JOB)),
            *("--connector", str(parts.flink_connector())),
            *("--bootstrap-servers", self.bootstrap),
            *("--source", SOURCE, "--sink", SINK, "--naming", naming),
            *("--checkpoints", str(self.checkpoints)),
            *options,
        ]
        # The project's own packages must not hide Flink's.
        environment = {"PYTHONPATH": "", "FLINK_LOG_DIR": str(folder)}
        self._output = judge.Reader(self.bootstrap, SINK)
        self.job = KillableProgram(command, folder / "job.log", environment)
        self.restarts = 0

    def committed(self) -> int:
        """How many output records a reader of committed records sees."""
        return self._output.advance()

    def wait_for_progress(self, timeout_s: float = PROGRESS_S) -> None:
        """Return when committed output has grown; start a job again that gave up."""
        before = self.committed()

        def has_grown() -> bool:
            self.restarts += self.job.restart_if_ended()
            return self.committed() > before

        try:
            wait_until(has_grown, "new committed output", timeout_s)
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.last_words()}") from error

    def last_words(self) -> str:
        """The end of the job's output and of Flink's log."""
        logs = [self.job.log, *self._folder.glob("flink-*.log")]
        return "\n".join(log.read_text(errors="replace")[-SHOWN_CHARACTERS:] for log in logs)

    def verdict(self) -> Verdict:
        """The committed output against the oracle."""
        lines = judge.values(self.bootstrap, SOURCE)
        return verdict(lines, judge.values(self.bootstrap, SINK))


def killed(
    cluster: ClusterUnderTest,
    folder: Path,
    naming: str,
    job_kills: int,
    broker_kills: int,
    seed: int = 1,
) -> Verdict:
    """Run the job under kills; the verdict on its output."""
    chance = random.Random(seed)
    kills = ["job"] * job_kills + ["broker"] * broker_kills
    chance.shuffle(kills)
    run = FlinkRun(cluster, folder, naming)
    with Feeder(run.bootstrap, SOURCE, line, LINES_PER_S) as feeder, run.job:
        run.wait_for_progress()
        for number, victim in enumerate(kills):
            began = time.monotonic()
            if victim == "broker":
                _kill_broker(cluster, chance)
            else:
                _kill_job(run, chance)
            took = time.monotonic() - began
            print(
                f"{naming}: kill {number + 1} of {len(kills)} ({victim}, {took:.1f} s): "
                f"{feeder.count} lines fed, {run.committed()} committed",
                flush=True,
            )
        feeder.stop()
        _drain(run, feeder.count)
        found = run.verdict()
    print(
        f"{naming}: {job_kills} kills of the job, {broker_kills} of brokers, {run.restarts} "
        f"restarts of a job that gave up: {found}",
        flush=True,
    )
    return found


def _kill_job(run: FlinkRun, chance: random.Random) -> None:
    if chance.random() < DIES_RECOVERING:
        time.sleep(chance.uniform(*STARTING_S))
    else:
        run.wait_for_progress()
        time.sleep(chance.uniform(*RUNNING_S))
    run.job.kill()
    run.job.start()


def _kill_broker(cluster: ClusterUnderTest, chance: random.Random) -> None:
    broker = chance.randrange(BROKERS)
    cluster.kill(broker)
    time.sleep(chance.uniform(*BROKER_DOWN_S))
    cluster.restart(broker)
    time.sleep(chance.uniform(*BETWEEN_BROKERS_S))


def _drain(run: FlinkRun, fed: int) -> None:
    def is_drained() -> bool:
        run.restarts += run.job.restart_if_ended()
        return run.committed() >= fed

    try:
        wait_until(is_drained, f"{fed} committed records in {SINK}", DRAIN_S)
    except AssertionError as error:
        raise AssertionError(f"{error}: {run.verdict()}: {run.last_words()}") from error
    # Duplicates may come behind the last record.
    time.sleep(3.0)


class Outage(NamedTuple):
    """What became of a job whose transaction timed out between checkpoint and commit."""

    exit_code: int | None
    """None: it went on."""
    verdict: Verdict
    log: str


def outage(cluster: ClusterUnderTest, folder: Path, naming: str) -> Outage:
    """Kill the job between a checkpoint and its commit, and start it after the timeout."""
    options = ("--transaction-timeout-ms", str(OUTAGE_TIMEOUT_MS), "--restarts", "2")
    run = FlinkRun(cluster, folder, naming, *options)
    with run.job:
        for batch in range(OUTAGE_TRIES):
            _feed_batch(run, batch)
            if _stopped_at_checkpoint(run, (batch + 1) * OUTAGE_LINES):
                break
            run.job.signal(signal.SIGCONT)
        else:
            raise AssertionError(f"no checkpoint without its commit in {OUTAGE_TRIES} batches")
        run.job.kill()
        # The coordinator aborts: then no reader waits for the transaction any more.
        wait_until(
            lambda: judge.is_stable(run.bootstrap, SINK), "the transaction's timeout", OUTAGE_S
        )
        run.job.start()
        deadline = time.monotonic() + ENDS_S
        while run.job.exit_code() is None and time.monotonic() < deadline:
            time.sleep(0.5)
        return Outage(run.job.exit_code(), run.verdict(), run.job.log_text())


def _feed_batch(run: FlinkRun, batch: int) -> None:
    first = batch * OUTAGE_LINES
    with Feeder(
        run.bootstrap, SOURCE, lambda n: line(first + n), 10 * LINES_PER_S, OUTAGE_LINES
    ) as feeder:
        feeder.join()


def _stopped_at_checkpoint(run: FlinkRun, fed: int) -> bool:
    """Stop the job as soon as a checkpoint is complete; whether a commit is still to come."""
    deadline = time.monotonic() + PROGRESS_S
    known = set(run.checkpoints.glob("*/chk-*/_metadata"))
    while time.monotonic() < deadline:
        complete = set(run.checkpoints.glob("*/chk-*/_metadata"))
        if complete - known:
            run.job.signal(signal.SIGSTOP)
            if not judge.is_stable(run.bootstrap, SINK):
                return True
            run.job.signal(signal.SIGCONT)
            known = set(run.checkpoints.glob("*/chk-*/_metadata"))
            if run.committed() >= fed:
                return False
        time.sleep(CHECKPOINT_POLL_S)
    raise AssertionError(f"no checkpoint within {PROGRESS_S} s: {run.last_words()}")


def main(arguments: Iterable[str]) -> int:
    """Run as told; 1 when the output is not exact, or a loss was silent."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kafka", action="store_true", help="against Apache Kafka")
    parser.add_argument("--naming", choices=NAMINGS, default=NAMINGS[0])
    parser.add_argument("--job-kills", type=int, default=3)
    parser.add_argument("--broker-kills", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--outage", action="store_true", help="instead of kills")
    options = parser.parse_args(list(arguments))
    kind = KAFKA if options.kafka else HEADWATER
    with (
        tempfile.TemporaryDirectory(prefix="flink-", ignore_cleanup_errors=True) as name,
        started(kind, Path(name)) as cluster,
    ):
        folder = Path(name) / "flink"
        if options.outage:
            found = outage(cluster, folder, options.naming)
            print(f"exit code {found.exit_code}; {found.verdict}")
            return 0 if found.exit_code else 1
        kills = (options.job_kills, options.broker_kills)
        return 0 if killed(cluster, folder, options.naming, *kills, options.seed).is_exact else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
