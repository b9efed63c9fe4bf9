"""Shared by the benches: figures, ratios pair by pair, their table, topics."""

from __future__ import annotations

import json
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic
from peers import HeadwaterPeer, KafkaPeer
from rich.console import Console
from rich.table import Table

Peer = KafkaPeer | HeadwaterPeer
Run = Callable[[Peer], "Figure"]


@dataclass(frozen=True)
class Figure:
    """One measurement: work per second, and server CPU seconds per million units of it.

    A latency is given as its inverse, so that more is better in every row.
    """

    rate: float
    cpu_per_million: float = 0.0


@dataclass(frozen=True)
class Bar:
    """What a ratio Headwater / Kafka is held to: at least this rate, at most this CPU per unit."""

    rate: float
    cpu: float | None = None


def create_topic(peer: Peer, topic: str, partitions: int, copies: int = 1) -> None:
    """Create a topic through the stock admin client and wait until it has leaders."""
    admin = AdminClient({"bootstrap.servers": peer.bootstrap})
    config = {"file.delete.delay.ms": "100"}
    if copies > 1:
        config["min.insync.replicas"] = "2"
    new = NewTopic(topic, num_partitions=partitions, replication_factor=copies, config=config)
    admin.create_topics([new])[topic].result(60)
    end = time.monotonic() + 60
    while time.monotonic() < end:
        found = admin.list_topics(topic, timeout=10).topics[topic]
        if len(found.partitions) == partitions and all(
            p.leader >= 0 for p in found.partitions.values()
        ):
            return
        time.sleep(0.05)
    raise RuntimeError(f"{topic} has no leaders on {peer.name}")


def touch(peer: Peer, topic: str, partitions: int) -> None:
    """One record to each partition: Kafka names a leader a moment before that leader knows."""
    producer = confluent_kafka.Producer({"bootstrap.servers": peer.bootstrap, "linger.ms": 0})
    for partition in range(partitions):
        producer.produce(topic, b"", partition=partition)
    if producer.flush(60):
        raise RuntimeError(f"{topic} takes no records on {peer.name}")


def topic_id(peer: Peer, topic: str) -> UUID:
    """The id that the cluster has given to the topic."""
    admin = AdminClient({"bootstrap.servers": peer.bootstrap})
    names = confluent_kafka.TopicCollection([topic])
    found = admin.describe_topics(names)[topic].result(60).topic_id
    high, low = found.get_most_significant_bits(), found.get_least_significant_bits()
    return UUID(int=(high % 2**64) << 64 | low % 2**64)


def delete_topics(peer: Peer, *topics: str) -> None:
    """Delete them, so that their bytes do not weigh on the next run."""
    admin = AdminClient({"bootstrap.servers": peer.bootstrap})  # must outlive its futures
    for done in admin.delete_topics(list(topics)).values():
        done.result(60)
    time.sleep(1.0)


def compare(name: str, pairs: list[tuple[Figure, Figure]], bar: Bar) -> dict[str, object]:
    """Medians, and the median of the pairwise ratios Headwater / Kafka."""
    rate = statistics.median(h.rate / k.rate for k, h in pairs)
    has_cpu = all(k.cpu_per_million and h.cpu_per_million for k, h in pairs)
    cpu = (
        statistics.median(h.cpu_per_million / k.cpu_per_million for k, h in pairs)
        if has_cpu
        else None
    )
    return {
        "work": name,
        "kafka_per_s": statistics.median(k.rate for k, _ in pairs),
        "headwater_per_s": statistics.median(h.rate for _, h in pairs),
        "ratio": rate,
        "bar": bar.rate,
        "cpu_ratio": cpu,
        "cpu_bar": bar.cpu,
        "holds": rate >= bar.rate and (bar.cpu is None or (cpu is not None and cpu <= bar.cpu)),
    }


def show(
    rows: list[dict[str, object]],
    memory: dict[str, float],
    *,
    as_json: bool,
    title: str = "Headwater against Apache Kafka 4.3, same box, alternating, medians",
) -> None:
    """The table for people, or JSON."""
    if as_json:
        print(json.dumps({"rows": rows, "rss_mb": memory, "python": python()}, indent=2))
        return
    table = Table(title=title)
    for column in ("work", "Kafka /s", "Headwater /s", "ratio", "bar", "CPU per unit, ratio", ""):
        table.add_column(column, justify="left" if column in ("work", "") else "right")
    for row in rows:
        cpu = "" if row["cpu_ratio"] is None else f"{row['cpu_ratio']:.2f}x"
        cpu_bar = f" (bar {row['cpu_bar']})" if row["cpu_bar"] else ""
        table.add_row(
            str(row["work"]),
            f"{row['kafka_per_s']:,.0f}",
            f"{row['headwater_per_s']:,.0f}",
            f"{row['ratio']:.2f}x",
            f"{row['bar']}x",
            cpu + cpu_bar,
            "holds" if row["holds"] else "MISSED",
        )
    console = Console()
    console.print(table)
    if memory:
        console.print("RSS, MB: " + ", ".join(f"{n} {m:.0f}" for n, m in memory.items()))
    console.print(f"Headwater ran on {python()}.")
    console.print("A build without optimization costs a fifth: docs/operating.md, Which Python")


def python() -> str:
    """Which interpreter the brokers run on: its build decides what they can do."""
    version = f"{platform.python_implementation()} {platform.python_version()}"
    return f"{version} of {Path(sys.executable).resolve()}"
