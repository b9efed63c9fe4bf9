"""Typed tables against the same pipeline in Spark: topic of JSON to Delta columns, turn by turn.

Spark's: Kafka source, `from_json` with the schema given, Delta sink, availableNow, on Apache Kafka.
Ours: `headwater_spark.tier` into the log table, then `follow_topic` until nothing is behind: the
schema is inferred, and what does not fit is kept. Six columns, about 90 bytes.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from measures import Peer, create_topic, show
from peers import HeadwaterPeer, KafkaPeer, bench_folder, spark_kafka_jars
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from spark_reads import PARTITIONS, kafka_stream, summary, timed, write_to_delta

from headwater import Admin, Producer
from headwater.system import SystemClock
from headwater_spark.jars import delta_jars
from headwater_spark.spark_session import session
from headwater_spark.tiering.job import tier
from headwater_tier.table_location import locate
from headwater_tier.typed.follow_log import follow_topic
from headwater_tier.typed.without_registry import WithoutRegistry

SCHEMA = "id bigint, user string, amount double, ok boolean, city string, count bigint"
CONFIGS = {"headwater.value.format": "json"}
BAR = 4.0
CHUNK_ROWS = 500_000
TITLE = "JSON topic to Delta columns: Spark's from_json on Kafka against typed tables, medians"


def json_values(start: int, count: int) -> pa.Array:
    """Objects of six fields, the same in either cluster."""
    generator = np.random.default_rng(start)
    ids = np.arange(start, start + count)

    def text(values: np.ndarray) -> pa.Array:
        return pa.array(values).cast(pa.string())

    parts = [
        ('{"id":', text(ids)),
        (',"user":"user-', text(generator.integers(0, 1_000_000, count))),
        ('","amount":', text(np.round(generator.random(count) * 1000, 2))),
        (',"ok":', pa.array(np.where(ids % 2, "true", "false"))),
        (',"city":"town-', text(generator.integers(0, 50, count))),
        ('","count":', text(generator.integers(0, 10**9, count))),
    ]
    flat = [piece for literal, values in parts for piece in (literal, values)]
    return pc.binary_join_element_wise(*flat, "}", "").cast(pa.binary())


def fill(peer: Peer, topic: str, rows: int) -> None:
    """Produce the objects into a new topic."""
    create_topic(peer, topic, PARTITIONS)
    with Producer(peer.bootstrap) as producer:
        for start in range(0, rows, CHUNK_ROWS):
            values = json_values(start, min(CHUNK_ROWS, rows - start))
            producer.send_table(topic, pa.table({"value": values}), value="value")
        producer.flush(120)


def theirs(spark: SparkSession, kafka: KafkaPeer, topic: str, folder: Path) -> None:
    """Spark's own way."""
    stream = (
        kafka_stream(spark, kafka, topic)
        .select(
            "partition",
            "offset",
            "timestamp",
            f.from_json(f.col("value").cast("string"), SCHEMA).alias("v"),
        )
        .select("partition", "offset", "timestamp", "v.*")
    )
    write_to_delta(stream, folder)


def ours(spark: SparkSession, headwater: HeadwaterPeer, topic: str) -> int:
    """Log table, then typed table; the typed rows."""
    tier(spark, topic, bootstrap_servers=headwater.bootstrap)
    with Admin(headwater.bootstrap) as admin:
        location = locate(admin, topic)
    rows = 0
    while True:
        turn = follow_topic(location, CONFIGS, WithoutRegistry(), SystemClock())
        rows += turn.rows
        if not turn.behind:
            return rows


def bench(
    spark: SparkSession, kafka: KafkaPeer, headwater: HeadwaterPeer, options: argparse.Namespace
) -> dict[str, object]:
    """Pairs of runs, each into fresh tables; raises when a row is missing."""
    fill(kafka, "typed", options.rows)
    folder = bench_folder("typed-delta")

    def their_seconds(number: int) -> float:
        target = folder / str(number)
        seconds = timed(lambda: theirs(spark, kafka, "typed", target))
        table = spark.read.format("delta").load(str(target / "table"))
        found = table.where("id is not null").count()
        shutil.rmtree(target)
        return checked(seconds, found)

    def our_seconds(number: int) -> float:
        topic = f"typed-{number}"
        fill(headwater, topic, options.rows)
        start = time.monotonic()
        found = ours(spark, headwater, topic)
        return checked(time.monotonic() - start, found)

    def checked(seconds: float, found: int) -> float:
        if found != options.rows:
            raise RuntimeError(f"{found} rows were written, not {options.rows}")
        return seconds

    for number in range(options.warmup):
        their_seconds(1000 + number)
        our_seconds(1000 + number)
    pairs = [(their_seconds(n), our_seconds(n)) for n in range(options.rounds)]
    shutil.rmtree(folder, ignore_errors=True)
    return summary("JSON of 6 columns, topic to typed Delta", pairs, options.rows, BAR)


def main() -> int:
    """Run the bench; 1 below the bar."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warmup", type=int, default=1)
    options = parser.parse_args()
    folder = bench_folder("typed")
    kafka = KafkaPeer(folder / "kafka")
    headwater = HeadwaterPeer(folder / "headwater")
    jars = ",".join([*(str(path) for path in delta_jars()), *spark_kafka_jars()])
    try:
        for peer in (kafka, headwater):
            peer.start()
        conf = {"spark.jars": jars, "spark.ui.enabled": "false"}
        spark = session("local[2]", app_name="headwater-bench", conf=conf)
        row = bench(spark, kafka, headwater, options)
        spark.stop()
    finally:
        for peer in (kafka, headwater):
            if peer.pids:
                peer.stop()
        shutil.rmtree(folder, ignore_errors=True)
    show([row], {}, as_json=False, title=TITLE)
    return 0 if row["holds"] else 1


if __name__ == "__main__":
    sys.exit(main())
