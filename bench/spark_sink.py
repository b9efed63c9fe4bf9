"""The streaming sinks: exactly once into Headwater, at least once into Kafka by Spark's connector.

The same rows come from Parquet files in one micro-batch; what counts is the micro-batch, from its
trigger to its commit. Each run has a topic and a checkpoint of its own, and its rows are counted.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from measures import Peer, create_topic, delete_topics
from peers import HeadwaterPeer, KafkaPeer, bench_folder
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from spark_reads import PARTITIONS, connector, read, summary

SINK_BARS = {100: 1.5, 1024: 1.0}
"""Bytes of a value -> the least ratio of rows per second."""
FILES = 4
PAYLOAD_BYTES = 400_000_000
"""Of all values of a run at most: as many bytes of large values as of small ones."""


def rows_of(value_bytes: int, rows: int) -> int:
    """Rows of a run: fewer when they are large."""
    return min(rows, PAYLOAD_BYTES // value_bytes)


def write_input(spark: SparkSession, folder: Path, rows: int, value_bytes: int) -> None:
    """Parquet files of keys and values that do not compress, without a pattern of partitions."""
    words = [f.sha2(f.concat(f.lit(f"{i}-"), f.col("id")), 512) for i in range(value_bytes // 128)]
    rest = f.substring(f.sha2(f.col("id").cast("string"), 512), 1, value_bytes % 128)
    value = f.concat(*words, rest).cast("binary").alias("value")
    frame = spark.range(0, rows, 1, FILES).select(
        f.col("id").cast("string").cast("binary").alias("key"), value
    )
    frame.write.mode("overwrite").option("compression", "none").parquet(str(folder))


def write_stream(
    spark: SparkSession, peer: Peer, source: Path, topic: str, delivery: str | None
) -> float:
    """Seconds of the micro-batch that moves the files into the topic."""
    folder = bench_folder("sink-checkpoint")
    stream = spark.readStream.schema("key BINARY, value BINARY").parquet(str(source))
    writer = (
        stream.writeStream.format(connector(peer))
        .option("kafka.bootstrap.servers", peer.bootstrap)
        .option("topic", topic)
        .option("checkpointLocation", str(folder))
        .trigger(availableNow=True)
    )
    if delivery is not None:
        writer = writer.option("headwater.delivery", delivery)
    query = writer.start()
    query.awaitTermination()
    batches = [p for p in query.recentProgress if p["numInputRows"]]
    shutil.rmtree(folder, ignore_errors=True)
    return sum(p["durationMs"]["triggerExecution"] for p in batches) / 1000


def bench_sink(
    spark: SparkSession,
    kafka: KafkaPeer,
    headwater: HeadwaterPeer,
    *,
    rows: int,
    rounds: int,
    warmup: int,
    delivery: str | None,
) -> list[dict[str, object]]:
    """Values of 100 B and of 1 KB. `delivery`: None for the default, exactly once."""
    found = []
    for value_bytes, bar in SINK_BARS.items():
        count = rows_of(value_bytes, rows)
        source = bench_folder(f"sink-input-{value_bytes}")
        write_input(spark, source, count, value_bytes)

        def run(peer: Peer, number: int, source: Path = source, count: int = count) -> float:
            topic = f"sink-{source.name[-4:].strip('-')}-{number}"
            create_topic(peer, topic, PARTITIONS)
            mode = delivery if isinstance(peer, HeadwaterPeer) else None
            seconds = write_stream(spark, peer, source, topic, mode)
            written = read(spark, peer, topic, None).count()
            if written != count:
                raise RuntimeError(f"{peer.name} has {written} rows in {topic}, not {count}")
            delete_topics(peer, topic)
            return seconds

        for i in range(warmup):
            run(kafka, 1000 + i)
            run(headwater, 1000 + i)
        pairs = [(run(kafka, i), run(headwater, i)) for i in range(rounds)]
        shutil.rmtree(source, ignore_errors=True)
        mode = delivery or "exactly-once"
        found.append(summary(f"sink {mode}, {value_bytes} B", pairs, count, bar))
    return found
