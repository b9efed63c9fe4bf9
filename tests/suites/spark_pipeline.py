"""The Spark program of `suites.spark`: reads a topic, and writes topics, perhaps a Delta table too.

    python -m suites.spark_pipeline KIND SERVERS INPUT OUTPUT FOLDER MASTER

KIND: `sink` (a streaming write to OUTPUT) or `both` (`exactly_once`: OUTPUT, its tens in
OUTPUT-alerts, and a table). It runs until it is killed.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

import headwater_spark
from headwater_spark.sink.exactly_once import EpochWrites

SINK, BOTH = "sink", "both"
KINDS = (SINK, BOTH)
ALERTS = "-alerts"
TRIGGER = "300 milliseconds"
MODULUS, FACTOR = 10_007, 7919
JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
CARRIED = ("HEADWATER_SPARK_", "PYTHONPATH", "NUMBA_CACHE_DIR")


def settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Of the session; executors get the hooks' environment."""
    carried = {k: v for k, v in environment.items() if k.startswith(CARRIED)}
    return {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.minBatchesToRetain": "100000",
        "spark.driver.extraJavaOptions": JVM,
        "spark.executor.extraJavaOptions": JVM,
        **{f"spark.executorEnv.{name}": value for name, value in carried.items()},
    }


def output_rows(stream: DataFrame) -> DataFrame:
    """`suites.spark_judge.transformed`, in Spark."""
    number = f.col("value").cast("string").cast("long")
    text = f.concat_ws(":", number, number * FACTOR % MODULUS)
    return stream.select(f.col("key").cast("string").alias("key"), text.alias("value"))


def main(kind: str, servers: str, source: str, output: str, folder: str, master: str) -> None:
    """Run the query; raises when it fails."""
    os.environ["HEADWATER_SPARK_STARTED"] = str(int(time.time()))
    spark = headwater_spark.session(master, delta=kind == BOTH, conf=settings(os.environ))
    spark.sparkContext.setLogLevel("ERROR")
    stream = (
        spark.readStream.format("headwater")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .load()
    )
    rows = output_rows(stream)

    def batch(part: DataFrame, _epoch: int, tx: EpochWrites) -> None:
        tx.delta(part)
        tx.topic(part, output)
        tx.topic(part.where("int(split(value, ':')[0]) % 10 = 0"), output + ALERTS)

    if kind == BOTH:
        table = str(Path(folder) / "table")
        both = headwater_spark.exactly_once(batch, bootstrap_servers=servers, table=table)
        started = rows.writeStream.foreachBatch(both)
    else:
        started = rows.writeStream.format("headwater").option("kafka.bootstrap.servers", servers)
        started = started.option("topic", output)
        if os.environ.get("HEADWATER_SPARK_PLANT") == "at-least-once":
            started = started.option("headwater.delivery", "at-least-once")
    checkpoint = str(Path(folder) / "checkpoint")
    query = started.option("checkpointLocation", checkpoint).trigger(processingTime=TRIGGER).start()
    print("started", query.runId, flush=True)
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
