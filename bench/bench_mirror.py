"""The mirror against MirrorMaker 2 on this machine: records a second, and CPU: `make bench-mirror`.

Both copy the same topic, by turns, from one cluster of ours to another (`--kafka`: between two of
Apache Kafka). The rate is taken from the first record in the target to the last one, and the CPU
seconds are those of the mirror's own process in that time: MirrorMaker's start is not counted.
MirrorMaker 2 copies at least once here, ours exactly once. Exit 1 when a bar is missed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from peers import HeadwaterPeer, KafkaPeer, bench_folder, cpu_seconds, mirror_maker_classpath
from rich.console import Console
from rich.table import Table

from headwater import Admin, NewTopic, Producer
from headwater.client.admin.client import LATEST
from headwater.client.values import TopicPartition

RATE_BAR, CPU_BAR = 1.0, 0.5
PARTITIONS = 6
TASKS = 4
POLL_S = 0.02
START_S = 120.0


class Run(NamedTuple):
    """One copy."""

    records_per_s: float
    cpu_s: float
    seconds: float


def fill(servers: str, topic: str, records: int, size: int, codec: str) -> int:
    """Write the source's records; how many."""
    with Admin(servers) as admin:
        admin.create_topics([NewTopic(topic, PARTITIONS, 1)])
    words = [os.urandom(size // 4).hex().encode() for _ in range(64)]
    with Producer(servers, compression_type=codec, linger_ms=5, batch_size=16_384) as producer:
        for n in range(records):
            producer.send(topic, words[n % 64][: size - 8] + b"%08d" % n, key=b"k%d" % (n % 1000))
    return records


def ends(admin: Admin, topic: str) -> int:
    """How many offsets the target's topic has."""
    rows = {TopicPartition(topic, p): LATEST for p in range(PARTITIONS)}
    return sum(at.offset for at in admin.list_offsets(rows).values())


def watch(servers: str, topic: str, records: int, pid: int) -> Run:
    """Follow a copy from its first record to its last."""
    with Admin(servers) as admin:
        deadline = time.monotonic() + START_S
        while topic not in admin.list_topics() or not ends(admin, topic):
            if time.monotonic() > deadline:
                raise SystemExit(f"nothing was copied in {START_S:.0f} s")
            time.sleep(POLL_S)
        began, cpu, first = time.monotonic(), cpu_seconds([pid]), ends(admin, topic)
        while (now := ends(admin, topic)) < records:
            time.sleep(POLL_S)
        seconds = time.monotonic() - began
        return Run((now - first) / seconds, cpu_seconds([pid]) - cpu, seconds)


def copy(
    kind: str, source: str, target: str, topic: str, records: int, folder: Path, codec: str
) -> Run:
    """Start one of the mirrors and measure it."""
    config = folder / f"{kind}-{topic}.properties"
    with Admin(target) as admin:
        if topic in admin.list_topics():
            admin.delete_topics([topic])
            while topic in admin.list_topics():
                time.sleep(0.1)
    if kind == "headwater":
        config.write_text(
            f"source.bootstrap.servers={source}\ntarget.bootstrap.servers={target}\n"
            f"topics={topic}\nmirror.id=bench-{time.time_ns()}\nmirror.buckets={TASKS}\n"
            "sync.group.offsets.enabled=false\n"
        )
        command = [sys.executable, "-m", "headwater", "mirror", "run", "--config", str(config)]
    else:
        config.write_text(mirror_maker(source, target, topic, codec))
        command = [
            "java", "-Xmx1G", "-cp", mirror_maker_classpath(),
            "org.apache.kafka.connect.mirror.MirrorMaker", str(config),
        ]  # fmt: skip
    with (folder / f"{kind}.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        return watch(target, topic, records, process.pid)
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def mirror_maker(source: str, target: str, topic: str, codec: str) -> str:
    """MirrorMaker 2's file: its defaults, the same names of topics, as many tasks."""
    name = f"s{time.time_ns()}"  # a former run's offsets would let it copy nothing
    return "\n".join(
        (
            f"clusters={name}, target", f"{name}.bootstrap.servers={source}",
            f"target.bootstrap.servers={target}", f"{name}->target.enabled=true",
            f"{name}->target.topics={topic}", f"tasks.max={TASKS}", "replication.factor=1",
            "checkpoints.topic.replication.factor=1", "heartbeats.topic.replication.factor=1",
            "offset-syncs.topic.replication.factor=1", "offset.storage.replication.factor=1",
            "status.storage.replication.factor=1", "config.storage.replication.factor=1",
            "emit.heartbeats.enabled=false", "emit.checkpoints.enabled=false",
            "replication.policy.class=org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
            f"target.producer.compression.type={codec}",
        )
    ) + "\n"  # fmt: skip


def main() -> int:
    """Run the pairs; exit 1 when a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_500_000)
    parser.add_argument("--size", type=int, default=200, help="bytes of a value")
    parser.add_argument("--codec", default="lz4")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--kafka", action="store_true", help="between two clusters of Kafka")
    parser.add_argument("--only", choices=("headwater", "mirror-maker"))
    options = parser.parse_args()
    folder = bench_folder("mirror")
    folder.mkdir(parents=True)
    kind = KafkaPeer if options.kafka else HeadwaterPeer
    clusters = [kind(folder / name) for name in ("a", "b")]
    try:
        source, target = (cluster.start().bootstrap for cluster in clusters)
        fill(source, "bench", options.records, options.size, options.codec)
        runs: dict[str, list[Run]] = {}
        for _ in range(options.pairs):
            for name in ("headwater", "mirror-maker"):
                if options.only in (None, name):
                    run = copy(
                        name, source, target, "bench", options.records, folder, options.codec
                    )
                    runs.setdefault(name, []).append(run)
                    print(name, run, file=sys.stderr)
    finally:
        for cluster in clusters:
            cluster.stop()
    return show(runs)


def show(runs: dict[str, list[Run]]) -> int:
    """The table, and the bars if both ran."""
    table = Table(title="A mirror's rate and CPU, medians")
    for heading in ("mirror", "records/s", "CPU s", "s"):
        table.add_column(heading, justify="left" if heading == "mirror" else "right")
    medians = {}
    for name, rows in runs.items():
        medians[name] = Run(*(statistics.median(column) for column in zip(*rows, strict=True)))
        rate, cpu, seconds = medians[name]
        table.add_row(name, f"{rate:,.0f}", f"{cpu:.2f}", f"{seconds:.1f}")
    Console().print(table)
    if len(medians) < 2:
        return 0
    ours, theirs = medians["headwater"], medians["mirror-maker"]
    rate, cpu = ours.records_per_s / theirs.records_per_s, ours.cpu_s / theirs.cpu_s
    print(f"rate {rate:.2f}x (bar {RATE_BAR}), CPU {cpu:.2f}x (bar {CPU_BAR})")
    return 0 if rate >= RATE_BAR and cpu <= CPU_BAR else 1


if __name__ == "__main__":
    sys.exit(main())
