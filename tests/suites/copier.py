"""Kafka's own TransactionalMessageCopier under kills of copiers and of brokers.

    python -m suites.copier --copier-kills 10 --broker-kills 5
    python -m suites.copier --kafka

As in Kafka's system test: copiers in one group read an input topic and write each record to the
same partition of the output topic, in transactions that hold the group's offsets; some are aborted
at random. Each output partition must be equal to its input partition, in order.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from suites import parts
from suites.clusters import (
    HEADWATER,
    KAFKA,
    ClusterUnderTest,
    create_topic,
    started,
)
from suites.copies import Difference, difference, line
from suites.kill_rounds import BROKER, drain, kill_in_turn
from suites.killing import Feeder, KillableProgram

COPIER = "org.apache.kafka.tools.TransactionalMessageCopier"
INPUT, OUTPUT, GROUP = "copier-in", "copier-out", "copiers"
PARTITIONS = 4
COPIERS = 2
LINES_PER_S = 200.0
WORKING_S = (3.0, 9.0)
CATCH_UP_S = 240.0
JVM = ("-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


def copier(bootstrap: str, number: int, log: Path) -> KillableProgram:
    """One copier; it ends when it has copied all that was there, and is then started again."""
    command = [
        *("java", *JVM, "-cp", parts.kafka_jars(), COPIER),
        *("--broker-list", bootstrap, "--transactional-id", f"copier-{number}"),
        *("--input-topic", INPUT, "--input-partition", "-1", "--output-topic", OUTPUT),
        *("--consumer-group", GROUP, "--group-mode", "--use-group-metadata"),
        *("--transaction-size", "100", "--transaction-timeout", "30000"),
        "--enable-random-aborts",
    ]
    return KillableProgram(command, log)


def killed(
    cluster: ClusterUnderTest, folder: Path, copier_kills: int, broker_kills: int, seed: int = 1
) -> list[Difference]:
    """Copy under kills; how output differs from input, per partition."""
    chance = random.Random(seed)
    kills = ["copier"] * copier_kills + [BROKER] * broker_kills
    chance.shuffle(kills)
    for topic in (INPUT, OUTPUT):
        create_topic(cluster.bootstrap, topic, PARTITIONS)
    copiers = [copier(cluster.bootstrap, n, folder / f"copier-{n}.log") for n in range(COPIERS)]
    ended = 0
    try:
        with Feeder(cluster.bootstrap, INPUT, lambda n: line(n, PARTITIONS), LINES_PER_S) as feeder:
            for program in copiers:
                program.start()
            ended += kill_in_turn(
                cluster,
                copiers,
                kills,
                chance,
                WORKING_S,
                lambda victim: print(f"{victim} killed: {feeder.count} lines fed", flush=True),
            )
        ended += drain(cluster.bootstrap, copiers, GROUP, INPUT, CATCH_UP_S)
    finally:
        for program in copiers:
            program.kill()
    found = difference(cluster.bootstrap, INPUT, OUTPUT)
    print(
        f"{copier_kills} kills of copiers, {broker_kills} of brokers, {ended} copiers that ended "
        f"by themselves and were started again: {feeder.count} lines, {found or 'all equal'}",
        flush=True,
    )
    return found


def main(arguments: Iterable[str]) -> int:
    """Run as told; 1 when the output differs from the input."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kafka", action="store_true", help="against Apache Kafka")
    parser.add_argument("--copier-kills", type=int, default=10)
    parser.add_argument("--broker-kills", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(list(arguments))
    with (
        tempfile.TemporaryDirectory(prefix="copier-", ignore_cleanup_errors=True) as name,
        started(KAFKA if options.kafka else HEADWATER, Path(name)) as cluster,
    ):
        kills = (options.copier_kills, options.broker_kills)
        return 1 if killed(cluster, Path(name), *kills, options.seed) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
