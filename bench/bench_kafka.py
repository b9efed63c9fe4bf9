"""Headwater against Apache Kafka on this box, alternating, warm: `make bench-kafka`.

Raw: prepared Produce frames from a C generator that costs little, 4 connections x 5 in flight to 4
partitions. Stock: one confluent-kafka producer, where the client is the bound and the server's CPU
per record is what counts. Every pair is measured back to back on the same file system; ratios are
taken pair by pair and the median is held against the bar. Exit 1 when a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic
from peers import CACHE, HeadwaterPeer, KafkaPeer, bench_folder, cpu_seconds, rss_megabytes
from rich.console import Console
from rich.table import Table

from headwater.records.builder import build_batch
from headwater.wire.apis.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from headwater.wire.headers import RequestHeader
from headwater.wire.schema import encode

PARTITIONS = 4
CONNECTIONS = 4
IN_FLIGHT = 5
FRAME_VERSION = 7
VALUE_BYTES = 100
PRODUCE_MESSAGES = 1_000_000
Peer = KafkaPeer | HeadwaterPeer


@dataclass(frozen=True)
class Raw:
    """One raw workload: `records` of 100 B per request, and the bar on requests/s."""

    name: str
    records: int
    bar: float


RAW = (Raw("1 record", 1, 2.0), Raw("16 KB", 150, 1.3), Raw("1 MB", 9000, 1.0))
STOCK_RATE_BAR = 1.0
STOCK_CPU_BAR = 0.6


@dataclass(frozen=True)
class Figure:
    """One measurement: work per second, and server CPU seconds per million units of it."""

    rate: float
    cpu_per_million: float


def blaster() -> str:
    """Compile the generator once. Raises SystemExit when there is no C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise SystemExit("no C compiler: install gcc (Debian: apt-get install gcc)")
    CACHE.mkdir(parents=True, exist_ok=True)
    binary = CACHE / "blaster"
    source = Path(__file__).with_name("blaster.c")
    if not binary.exists() or binary.stat().st_mtime < source.stat().st_mtime:
        subprocess.run([compiler, "-O2", "-o", str(binary), str(source)], check=True)
    return str(binary)


def write_frames(folder: Path, topic: str, records: int) -> list[str]:
    """One Produce v7 frame (acks=1) per partition, with its length prefix."""
    folder.mkdir(parents=True, exist_ok=True)
    now_ms = time.time_ns() // 1_000_000
    rows = [(now_ms, None, os.urandom(VALUE_BYTES), ()) for _ in range(records)]
    paths = []
    for partition in range(PARTITIONS):
        data = PartitionProduceData(index=partition, records=build_batch(rows))
        request = ProduceRequest(
            acks=1,
            timeout_ms=30_000,
            topic_data=(TopicProduceData(name=topic, partition_data=(data,)),),
        )
        header = RequestHeader(
            request_api_key=0,
            request_api_version=FRAME_VERSION,
            correlation_id=1,
            client_id="bench",
        )
        body = encode(header, 1) + encode(request, FRAME_VERSION)
        path = folder / f"{topic}-{partition}"
        path.write_bytes(len(body).to_bytes(4, "big") + body)
        paths.append(str(path))
    return paths


def create_topic(peer: Peer, topic: str, partitions: int = PARTITIONS, copies: int = 1) -> None:
    """Create a topic through the stock admin client and wait until it has leaders."""
    admin = AdminClient({"bootstrap.servers": peer.bootstrap})
    config = {"file.delete.delay.ms": "100"}
    new = NewTopic(topic, num_partitions=partitions, replication_factor=copies, config=config)
    admin.create_topics([new])[topic].result(30)
    end = time.monotonic() + 30
    while time.monotonic() < end:
        found = admin.list_topics(topic, timeout=10).topics[topic]
        if len(found.partitions) == partitions and all(
            p.leader >= 0 for p in found.partitions.values()
        ):
            return
        time.sleep(0.05)
    raise RuntimeError(f"{topic} has no leaders on {peer.name}")


def touch(peer: Peer, topic: str) -> None:
    """One record to each partition: Kafka names a leader a moment before that leader knows."""
    producer = confluent_kafka.Producer({"bootstrap.servers": peer.bootstrap, "linger.ms": 0})
    for partition in range(PARTITIONS):
        producer.produce(topic, b"", partition=partition)
    if producer.flush(30):
        raise RuntimeError(f"{topic} takes no records on {peer.name}")


def delete_topic(peer: Peer, topic: str) -> None:
    """Delete it, so that its bytes do not weigh on the next run."""
    admin = AdminClient({"bootstrap.servers": peer.bootstrap})  # must outlive its future
    admin.delete_topics([topic])[topic].result(30)
    time.sleep(1.0)


def run_raw(peer: Peer, work: Raw, seconds: float, frames: Path) -> Figure:
    """Blast one fresh topic for `seconds`."""
    topic = f"raw{time.monotonic_ns()}"
    create_topic(peer, topic)
    touch(peer, topic)
    files = write_frames(frames, topic, work.records)
    error_at = 4 + 4 + 2 + len(topic) + 4 + 4
    before = cpu_seconds(peer.pids)
    command = [blaster(), str(peer.ports[0]), str(CONNECTIONS), str(IN_FLIGHT), str(seconds)]
    done = subprocess.run(
        [*command, str(error_at), *files], capture_output=True, text=True, check=False
    )
    used = cpu_seconds(peer.pids) - before
    delete_topic(peer, topic)
    if done.returncode != 0:
        raise RuntimeError(f"{peer.name} {work.name}: {done.stdout}{done.stderr}")
    result = json.loads(done.stdout)
    requests = result["requests"]
    return Figure(requests / result["seconds"], used / requests * 1e6)


def run_stock(peer: Peer) -> Figure:
    """One confluent-kafka producer, 100 B, its own defaults (acks=all, no idempotence)."""
    topic = f"stock{time.monotonic_ns()}"
    create_topic(peer, topic)
    config = {
        "bootstrap.servers": peer.bootstrap,
        "linger.ms": 5,
        "queue.buffering.max.messages": 2_000_000,
    }
    producer = confluent_kafka.Producer(config)
    failures: list[object] = []

    def report(error: object, _message: object) -> None:
        if error is not None:
            failures.append(error)

    value = os.urandom(VALUE_BYTES)
    before, start = cpu_seconds(peer.pids), time.monotonic()
    for i in range(PRODUCE_MESSAGES):
        producer.produce(topic, value, partition=i % PARTITIONS, on_delivery=report)
        if i % 10_000 == 0:
            producer.poll(0)
    left = producer.flush(120)
    seconds = time.monotonic() - start
    used = cpu_seconds(peer.pids) - before
    delete_topic(peer, topic)
    if left or failures:
        raise RuntimeError(f"{peer.name}: {left} unsent, {len(failures)} failed: {failures[:1]}")
    return Figure(PRODUCE_MESSAGES / seconds, used / PRODUCE_MESSAGES * 1e6)


def main() -> int:
    """Run all pairs, print the table, say which bars hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="pairs per workload")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of one raw run")
    parser.add_argument("--warmup", type=float, default=8.0, help="seconds per workload, each")
    parser.add_argument("--only", choices=("raw", "stock"), help="this half of it")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    folder = bench_folder("kafka")
    kafka = KafkaPeer(folder / "kafka")
    headwater = HeadwaterPeer(folder / "headwater")
    console = Console(stderr=True)
    rows: list[dict[str, object]] = []
    try:
        for peer in (kafka, headwater):
            peer.start()
        idle = {p.name: rss_megabytes(p.pids[0]) for p in (kafka, headwater)}
        for work in RAW if options.only != "stock" else ():
            console.print(f"raw {work.name}: warm-up, then {options.rounds} pairs")
            for peer in (kafka, headwater):
                run_raw(peer, work, options.warmup, folder / "frames")
            pairs = [
                (
                    run_raw(kafka, work, options.seconds, folder / "frames"),
                    run_raw(headwater, work, options.seconds, folder / "frames"),
                )
                for _ in range(options.rounds)
            ]
            rows.append(summary(f"raw produce, {work.name}", pairs, work.bar, None))
        if options.only != "raw":
            console.print("stock producer: warm-up, then pairs")
            for peer in (kafka, headwater):
                run_stock(peer)
            stock = [(run_stock(kafka), run_stock(headwater)) for _ in range(options.rounds)]
            rows.append(summary("stock librdkafka, 100 B", stock, STOCK_RATE_BAR, STOCK_CPU_BAR))
    finally:
        for peer in (kafka, headwater):
            if peer.pids:
                peer.stop()
        shutil.rmtree(folder, ignore_errors=True)
    show(rows, idle, as_json=options.json)
    return 0 if all(row["holds"] for row in rows) else 1


def summary(
    name: str, pairs: list[tuple[Figure, Figure]], rate_bar: float, cpu_bar: float | None
) -> dict[str, object]:
    """Medians, and the median of the pairwise ratios Headwater / Kafka."""
    rate = statistics.median(h.rate / k.rate for k, h in pairs)
    cpu = statistics.median(h.cpu_per_million / k.cpu_per_million for k, h in pairs)
    return {
        "work": name,
        "kafka_per_s": statistics.median(k.rate for k, _ in pairs),
        "headwater_per_s": statistics.median(h.rate for _, h in pairs),
        "ratio": rate,
        "bar": rate_bar,
        "cpu_ratio": cpu,
        "cpu_bar": cpu_bar,
        "holds": rate >= rate_bar and (cpu_bar is None or cpu <= cpu_bar),
    }


def show(rows: list[dict[str, object]], idle: dict[str, float], *, as_json: bool) -> None:
    """The table for people, or JSON."""
    if as_json:
        print(json.dumps({"rows": rows, "idle_rss_mb": idle}, indent=2))
        return
    table = Table(title="Headwater against Apache Kafka 4.3, same box, alternating, medians")
    for column in ("work", "Kafka /s", "Headwater /s", "ratio", "bar", "CPU per unit, ratio", ""):
        table.add_column(column, justify="left" if column in ("work", "") else "right")
    for row in rows:
        cpu_bar = f" (bar {row['cpu_bar']})" if row["cpu_bar"] else ""
        table.add_row(
            str(row["work"]),
            f"{row['kafka_per_s']:,.0f}",
            f"{row['headwater_per_s']:,.0f}",
            f"{row['ratio']:.2f}x",
            f"{row['bar']}x",
            f"{row['cpu_ratio']:.2f}x{cpu_bar}",
            "holds" if row["holds"] else "MISSED",
        )
    console = Console()
    console.print(table)
    console.print("idle RSS, MB: " + ", ".join(f"{n} {m:.0f}" for n, m in idle.items()))


if __name__ == "__main__":
    sys.exit(main())
