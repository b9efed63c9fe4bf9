"""Spark on Headwater against Spark's own Kafka connector on Apache Kafka, same box, alternating.

`make bench-source`: `sum(length(value))` over 100 B records. `make bench-tier`: topic to Delta, by
`headwater tier run` and by Spark's Kafka-to-Delta stream with availableNow. One Spark session,
local[2], both connectors in it; each pair back to back after a warm-up; ratios pair by pair.
Exit 1 when a bar is missed.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
from measures import Bar, Figure, compare, create_topic, show
from peers import HeadwaterPeer, KafkaPeer, bench_folder, spark_kafka_jars
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from headwater import Producer
from headwater_spark.jars import delta_jars
from headwater_spark.spark_session import session
from headwater_spark.tiering.job import tier

VALUE_BYTES = 100
PARTITIONS = 4
CHUNK_ROWS = 500_000
SOURCE_BAR = 2.0
SOURCE_VALUE_ONLY_BAR = 2.5
TIER_BAR = 5.0
TITLE = "Spark on Headwater against Spark's Kafka connector, rows of 100 B, medians"
Peer = KafkaPeer | HeadwaterPeer
Pair = tuple[float, float]


def fill(peer: Peer, topic: str, rows: int) -> None:
    """The same random values into either cluster, through the same SDK."""
    create_topic(peer, topic, PARTITIONS)
    generator = np.random.default_rng(7)
    with Producer(peer.bootstrap) as producer:
        for start in range(0, rows, CHUNK_ROWS):
            count = min(CHUNK_ROWS, rows - start)
            data = pa.py_buffer(generator.bytes(count * VALUE_BYTES))
            offsets = pa.array(np.arange(0, (count + 1) * VALUE_BYTES, VALUE_BYTES, np.int32))
            values = pa.Array.from_buffers(pa.binary(), count, [None, offsets.buffers()[1], data])
            producer.send_table(topic, pa.table({"value": values}), value="value")
        producer.flush(120)


def timed(work: Callable[[], None]) -> float:
    """Wall seconds of one call."""
    start = time.monotonic()
    work()
    return time.monotonic() - start


def read(spark: SparkSession, peer: Peer, topic: str, schema: str | None) -> DataFrame:
    """A batch read of the whole topic by the peer's own connector."""
    reader = spark.read.format("kafka" if isinstance(peer, KafkaPeer) else "headwater")
    if schema is not None and isinstance(peer, HeadwaterPeer):
        reader = reader.schema(schema)
    return (
        reader.option("kafka.bootstrap.servers", peer.bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )


def sum_lengths(frame: DataFrame, rows: int) -> None:
    """The measured query. Raises when the answer is wrong."""
    found = frame.agg(f.sum(f.length("value"))).first()
    if found is None or found[0] != rows * VALUE_BYTES:
        raise RuntimeError(f"sum(length(value)) is {found}, not {rows * VALUE_BYTES}")


def bench_source(
    spark: SparkSession, kafka: KafkaPeer, headwater: HeadwaterPeer, options: argparse.Namespace
) -> list[dict[str, object]]:
    """All columns offered, then `.schema("value binary")`."""
    for peer in (kafka, headwater):
        fill(peer, "source", options.rows)
    rows = []
    for name, schema, bar in (
        ("source, all columns offered", None, SOURCE_BAR),
        ('source, .schema("value binary")', "value binary", SOURCE_VALUE_ONLY_BAR),
    ):

        def run(peer: Peer, schema: str | None = schema) -> float:
            return timed(lambda: sum_lengths(read(spark, peer, "source", schema), options.rows))

        for peer in (kafka, headwater):
            for _ in range(options.warmup):
                run(peer)
        pairs = [(run(kafka), run(headwater)) for _ in range(options.rounds)]
        rows.append(summary(name, pairs, options.rows, bar))
    return rows


def stream_to_delta(spark: SparkSession, kafka: KafkaPeer, topic: str, folder: Path) -> None:
    """Spark's own way: Kafka source, Delta sink, availableNow."""
    stream = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", kafka.bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    query = (
        stream.writeStream.format("delta")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(folder / "table"))
    )
    query.awaitTermination()


def bench_tier(
    spark: SparkSession, kafka: KafkaPeer, headwater: HeadwaterPeer, options: argparse.Namespace
) -> list[dict[str, object]]:
    """Topic to Delta; each round into a fresh table."""
    fill(kafka, "tier", options.rows)
    folder = bench_folder("tier-delta")

    def theirs(i: int) -> float:
        target = folder / str(i)
        seconds = timed(lambda: stream_to_delta(spark, kafka, "tier", target))
        found = spark.read.format("delta").load(str(target / "table")).count()
        shutil.rmtree(target)
        if found != options.rows:
            raise RuntimeError(f"Spark's stream wrote {found} rows, not {options.rows}")
        return seconds

    def ours(i: int) -> float:
        topic = f"tier-{i}"
        fill(headwater, topic, options.rows)
        start = time.monotonic()
        found = tier(spark, topic, bootstrap_servers=headwater.bootstrap).rows
        seconds = time.monotonic() - start
        if found != options.rows:
            raise RuntimeError(f"headwater tier wrote {found} rows, not {options.rows}")
        return seconds

    for i in range(options.warmup):
        theirs(1000 + i)
        ours(1000 + i)
    pairs = [(theirs(i), ours(i)) for i in range(options.rounds)]
    shutil.rmtree(folder, ignore_errors=True)
    return [summary("tier, topic to Delta", pairs, options.rows, TIER_BAR)]


def summary(name: str, pairs: list[Pair], rows: int, bar: float) -> dict[str, object]:
    """Seconds of both, pair by pair, as rows per second."""
    rates = [(Figure(rows / theirs), Figure(rows / ours)) for theirs, ours in pairs]
    return compare(name, rates, Bar(bar))


def main() -> int:
    """Run one bench, print its table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bench", choices=("source", "tier"))
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--warmup", type=int, default=2)
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
        spark = session("local[2]", app_name="headwater-bench", conf=conf)
        bench = bench_source if options.bench == "source" else bench_tier
        rows = bench(spark, kafka, headwater, options)
        spark.stop()
    finally:
        for peer in (kafka, headwater):
            if peer.pids:
                peer.stop()
        shutil.rmtree(folder, ignore_errors=True)
    show(rows, {}, as_json=options.json, title=TITLE)
    return 0 if all(row["holds"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
