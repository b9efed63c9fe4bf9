"""The recipes of docs/exactly-once.md under kills: consume, transform, produce, in each client.

    python -m suites.recipes confluent-kafka --kills 20 --broker-kills 5
    python -m suites.recipes Java --kafka

Workers are killed by SIGKILL at random and started again, in a seeded order. At the end each output
partition must be equal to the transformed input partition, in order.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from suites import judge, parts
from suites.clusters import (
    HEADWATER,
    KAFKA,
    ClusterUnderTest,
    create_topic,
    started,
)
from suites.copies import Difference, difference, line
from suites.kill_rounds import BROKER, drain, kill_in_turn
from suites.killing import Feeder, KillableProgram, wait_until

RECIPES_FOLDER = parts.ROOT / "jobs" / "exactly_once"
PARTITIONS = 4
LINES_PER_S = 300.0
WORKING_S = (0.3, 4.0)
CATCH_UP_S = 180.0
FIRST_S = 60.0


class Names(NamedTuple):
    """What a worker is told."""

    bootstrap: str
    source: str
    output: str
    group: str


class Recipe(NamedTuple):
    """How many workers, and the command of each."""

    workers: int
    command: Callable[[Names, int], Sequence[str]]


def _python(script: str) -> Callable[[Names, int], Sequence[str]]:
    program = str(RECIPES_FOLDER / script)
    return lambda names, number: (sys.executable, program, *names, f"worker-{number}")


def _of_partition(names: Names, number: int) -> Sequence[str]:
    return (sys.executable, str(RECIPES_FOLDER / "aiokafka_worker.py"), *names, str(number))


def _java(names: Names, number: int) -> Sequence[str]:
    jvm = ("java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
    program = str(RECIPES_FOLDER / "JavaWorker.java")
    return (*jvm, "-cp", parts.kafka_jars(), program, *names, f"worker-{number}")


RECIPES: Mapping[str, Recipe] = {
    "SDK": Recipe(2, _python("sdk_worker.py")),
    "confluent-kafka": Recipe(2, _python("confluent_worker.py")),
    "aiokafka": Recipe(PARTITIONS, _of_partition),
    "Java": Recipe(2, _java),
}


class Outcome(NamedTuple):
    """A run's figures."""

    lines: int
    worker_kills: int
    broker_kills: int
    ended: int
    """Workers that ended with an error and were started again."""
    differences: Sequence[Difference]

    def __str__(self) -> str:
        return (
            f"{self.worker_kills} kills of workers, {self.broker_kills} of brokers, {self.ended} "
            f"workers that gave up and were started again: {self.lines} lines, "
            f"{self.differences or 'output exact'}"
        )


def killed(
    cluster: ClusterUnderTest,
    folder: Path,
    recipe: str,
    worker_kills: int,
    broker_kills: int = 0,
    seed: int = 1,
) -> Outcome:
    """Run a recipe under kills."""
    chance = random.Random(seed)
    victims = ["worker"] * worker_kills + [BROKER] * broker_kills
    chance.shuffle(victims)
    prefix = f"recipe-{recipe.lower()}-{seed}"
    names = Names(cluster.bootstrap, f"{prefix}-in", f"{prefix}-out", f"{prefix}-group")
    for topic in (names.source, names.output):
        create_topic(cluster.bootstrap, topic, PARTITIONS)
    row = RECIPES[recipe]
    workers = [
        KillableProgram(row.command(names, n), folder / f"{prefix}-{n}.log")
        for n in range(row.workers)
    ]
    ended = 0
    try:
        with Feeder(
            cluster.bootstrap, names.source, lambda n: line(n, PARTITIONS), LINES_PER_S
        ) as feeder:
            for worker in workers:
                worker.start()
            _wait_for_output(names, workers)
            ended += kill_in_turn(cluster, workers, victims, chance, WORKING_S)
        ended += drain(names.bootstrap, workers, names.group, names.source, CATCH_UP_S)
    finally:
        for worker in workers:
            worker.kill()
    found = difference(cluster.bootstrap, names.source, names.output, str.upper)
    return Outcome(feeder.count, worker_kills, broker_kills, ended, found)


def _wait_for_output(names: Names, workers: Sequence[KillableProgram]) -> None:
    with judge.Reader(names.bootstrap, names.output) as output:
        try:
            wait_until(lambda: output.advance() > 0, "the first committed record", FIRST_S)
        except AssertionError as error:
            raise AssertionError(f"{error}: {workers[0].last_words()}") from error


def main(arguments: Iterable[str]) -> int:
    """Run one recipe or all; 1 when an output is not exact."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kafka", action="store_true", help="against Apache Kafka")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--broker-kills", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("recipes", nargs="*", help=f"of {', '.join(RECIPES)}; all without a name")
    options = parser.parse_args(list(arguments))
    exact = True
    with (
        tempfile.TemporaryDirectory(prefix="recipes-", ignore_cleanup_errors=True) as name,
        started(KAFKA if options.kafka else HEADWATER, Path(name)) as cluster,
    ):
        for recipe in options.recipes or RECIPES:
            kills = (options.kills, options.broker_kills)
            found = killed(cluster, Path(name), recipe, *kills, options.seed)
            print(f"{recipe}: {found}", flush=True)
            exact = exact and not found.differences
    return 0 if exact else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
