"""Spark on Headwater against Spark's own Kafka connector on Apache Kafka, same box, alternating.

`make bench-source`: `sum(length(value))` over records of 100 B and 1 KB. `make bench-tier`: topic
to Delta, by the tiering service and by Spark's Kafka-to-Delta stream with availableNow. `make
bench-spark`: the source, the exactly-once sink against Spark's at-least-once Kafka sink, and the
times of micro-batches and idle polls. One Spark session, local[2], both connectors in it; each pair
back to back after a warm-up; ratios pair by pair. Exit 1 when a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from measures import python, show
from peers import HeadwaterPeer, KafkaPeer, bench_folder, spark_kafka_jars
from pyspark.sql import SparkSession
from spark_latency import Limit, bench_latency, show_limits
from spark_reads import (
    fill,
    kafka_stream,
    read,
    sum_lengths,
    summary,
    timed,
    write_to_delta,
)
from spark_sink import bench_sink

from headwater_spark.jars import delta_jars
from headwater_spark.spark_session import session

VALUE_BYTES = 100
LARGE_BYTES = 1024
LARGE_ROWS_DIVISOR = 8
SOURCE_BAR = 2.5
SOURCE_VALUE_ONLY_BAR = 3.5
SOURCE_LARGE_BAR = 1.3
TIER_BAR = 10.0
TIER_LARGE_BAR = 5.0
LATENCY_BATCHES = 30
TITLE = "Spark on Headwater against Spark's Kafka connector, medians"
VALUE_ONLY = "value binary"


def bench_source(
    spark: SparkSession, kafka: KafkaPeer, headwater: HeadwaterPeer, options: argparse.Namespace
) -> list[dict[str, object]]:
    """All columns offered, then `.schema("value binary")`; then values of 1 KB."""
    large_rows = options.rows // LARGE_ROWS_DIVISOR
    for peer in (kafka, headwater):
        fill(peer, "source", options.rows, VALUE_BYTES)
        fill(peer, "large", large_rows, LARGE_BYTES)
    small = ("source", options.rows, VALUE_BYTES)
    large = ("large", large_rows, LARGE_BYTES)
    rows = []
    for name, (topic, count, size), schema, bar in (
        ("source, all columns offered, 100 B", small, None, SOURCE_BAR),
        ('source, .schema("value binary"), 100 B', small, VALUE_ONLY, SOURCE_VALUE_ONLY_BAR),
        ("source, all columns offered, 1 KB", large, None, SOURCE_LARGE_BAR),
        ('source, .schema("value binary"), 1 KB', large, VALUE_ONLY, SOURCE_LARGE_BAR),
    ):

        def run(
            peer: KafkaPeer | HeadwaterPeer,
            topic: str = topic,
            schema: str | None = schema,
            total: int = count * size,
        ) -> float:
            return timed(lambda: sum_lengths(read(spark, peer, topic, schema), total))

        for peer in (kafka, headwater):
            for _ in range(options.warmup):
                run(peer)
        pairs = [(run(kafka), run(headwater)) for _ in range(options.rounds)]
        rows.append(summary(name, pairs, count, bar))
    return rows


def stream_to_delta(spark: SparkSession, kafka: KafkaPeer, topic: str, folder: Path) -> None:
    """Spark's own way: Kafka source, Delta sink, availableNow."""
    write_to_delta(kafka_stream(spark, kafka, topic), folder)


def bench_tier(
    spark: SparkSession, kafka: KafkaPeer, headwater: HeadwaterPeer, options: argparse.Namespace
) -> list[dict[str, object]]:
    """Topic to Delta, values of 100 B and of 1 KB; each round into a fresh table."""
    large_rows = options.rows // LARGE_ROWS_DIVISOR
    rows = []
    for name, size, count, bar in (
        ("tier, topic to Delta, 100 B", VALUE_BYTES, options.rows, TIER_BAR),
        ("tier, topic to Delta, 1 KB", LARGE_BYTES, large_rows, TIER_LARGE_BAR),
    ):
        with tier_service(headwater) as ours:
            pairs = _tier_pairs(spark, kafka, headwater, ours, options, size, count)
        rows.append(summary(name, pairs, count, bar))
    return rows


def _tier_pairs(
    spark: SparkSession,
    kafka: KafkaPeer,
    headwater: HeadwaterPeer,
    ours: Callable[[str], dict[str, Any]],
    options: argparse.Namespace,
    size: int,
    count: int,
) -> list[tuple[float, float]]:
    source, folder = f"tier-{size}", bench_folder(f"tier-delta-{size}")
    fill(kafka, source, count, size)

    def theirs(i: int) -> float:
        target = folder / str(i)
        seconds = timed(lambda: stream_to_delta(spark, kafka, source, target))
        found = spark.read.format("delta").load(str(target / "table")).count()
        shutil.rmtree(target)
        if found != count:
            raise RuntimeError(f"Spark's stream wrote {found} rows, not {count}")
        return seconds

    def own(i: int) -> float:
        topic = f"tier-{size}-{i}"
        fill(headwater, topic, count, size)
        done = ours(topic)
        if done["rows"] != count:
            raise RuntimeError(f"the service wrote {done['rows']} rows, not {count}")
        return float(done["seconds"])

    for i in range(options.warmup):
        theirs(1000 + i)
        own(1000 + i)
    pairs = [(theirs(i), own(i)) for i in range(options.rounds)]
    shutil.rmtree(folder, ignore_errors=True)
    return pairs


@contextmanager
def tier_service(headwater: HeadwaterPeer) -> Iterator[Callable[[str], dict[str, Any]]]:
    """A process that tiers a topic when it is called with its name."""
    script = Path(__file__).with_name("tier_service.py")
    process = subprocess.Popen(
        [sys.executable, str(script), headwater.bootstrap],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None
    given, answers = process.stdin, process.stdout

    def ask(topic: str) -> dict[str, Any]:
        print(topic, file=given, flush=True)
        return dict(json.loads(answers.readline()))

    try:
        answers.readline()
        yield ask
    finally:
        given.close()
        process.wait()


def run_benches(
    spark: SparkSession, kafka: KafkaPeer, headwater: HeadwaterPeer, options: argparse.Namespace
) -> tuple[list[dict[str, object]], list[Limit]]:
    """The rows and limits of the bench that was named; `spark` is all but tier."""
    name = options.bench
    rows: list[dict[str, object]] = []
    if name == "tier":
        rows += bench_tier(spark, kafka, headwater, options)
    if name in ("source", "spark"):
        rows += bench_source(spark, kafka, headwater, options)
    if name in ("sink", "spark"):
        rows += bench_sink(
            spark,
            kafka,
            headwater,
            rows=options.rows,
            rounds=options.rounds,
            warmup=options.warmup,
            delivery=options.delivery,
        )
    has_limits = name in ("latency", "spark")
    return rows, bench_latency(spark, headwater, LATENCY_BATCHES) if has_limits else []


def main() -> int:
    """Run one bench, print its tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bench", choices=("source", "sink", "latency", "tier", "spark"))
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--delivery", help="the sink's headwater.delivery; default: exactly once")
    parser.add_argument(
        "--conf", action="append", default=[], metavar="KEY=VALUE", help="a setting of Spark's"
    )
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    folder = bench_folder("spark")
    kafka = KafkaPeer(folder / "kafka")
    headwater = HeadwaterPeer(folder / "headwater")
    jars = ",".join(spark_kafka_jars())
    try:
        for peer in (kafka, headwater):
            peer.start()
        delta = ",".join(str(path) for path in delta_jars())
        conf = {"spark.jars": f"{delta},{jars}", "spark.ui.enabled": "false"}
        conf |= dict(setting.split("=", 1) for setting in options.conf)
        spark = session("local[2]", app_name="headwater-bench", conf=conf)
        rows, limits = run_benches(spark, kafka, headwater, options)
        spark.stop()
    finally:
        for peer in (kafka, headwater):
            if peer.pids:
                peer.stop()
        shutil.rmtree(folder, ignore_errors=True)
    if options.json:
        found = {"rows": rows, "limits": [one.row() for one in limits], "python": python()}
        print(json.dumps(found, indent=2))
    else:
        if rows:
            show(rows, {}, as_json=False, title=TITLE)
        if limits:
            show_limits(limits)
    holds = all(row["holds"] for row in rows) and all(one.holds for one in limits)
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
