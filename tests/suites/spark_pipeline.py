"""The Spark program of `suites.spark`: reads a topic, and writes topics, perhaps a Delta table too.

    python -m suites.spark_pipeline KIND SERVERS INPUT OUTPUT FOLDER MASTER

KIND: `sink` (a streaming write to OUTPUT) or `both` (`exactly_once`: OUTPUT, its tens in
OUTPUT-alerts, and a table). It runs until it is killed. A query that failed is started again in the
same driver, as a new one costs most of a minute of CPU time; in a driver that `superseded` names,
its failure ends the program.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import DataStreamWriter

import headwater_spark
from headwater_spark.sink.exactly_once import EpochWrites
from headwater_spark.spark_session import has_ended

SINK, BOTH = "sink", "both"
KINDS = (SINK, BOTH)
ALERTS = "-alerts"
EVERY = 10
"""One of so many rows is an alert."""
TRIGGER = "300 milliseconds"
MODULUS, FACTOR = 10_007, 7919
JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SUPERSEDED = "superseded"
"""A file in FOLDER: the process ids of drivers whose place another one has taken, one a line."""
RESTARTED = "restarted"
"""A file in FOLDER: a line for each query that was started again in its driver."""
MERGING = "merging"
"""A file in FOLDER: while it is there, micro-batches of `both` are merged into the table."""
AGAIN_S = 1.0
CARRIED = ("HEADWATER_SPARK_", "PYTHONPATH", "NUMBA_CACHE_DIR")


def settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Of the session; executors get the hooks' environment."""
    carried = {k: v for k, v in environment.items() if k.startswith(CARRIED)}
    return {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.minBatchesToRetain": "100000",
        "spark.sql.codegen.wholeStage": "false",
        "spark.python.authenticate.socketTimeout": "120s",
        "spark.driver.extraJavaOptions": JVM,
        "spark.executor.extraJavaOptions": JVM,
        **{f"spark.executorEnv.{name}": value for name, value in carried.items()},
    }


def output_rows(stream: DataFrame) -> DataFrame:
    """`suites.spark_judge.transformed`, in Spark."""
    number = f.col("value").cast("string").cast("long")
    text = f.concat_ws(":", number, number * FACTOR % MODULUS)
    return stream.select(f.col("key").cast("string").alias("key"), text.alias("value"))


def is_superseded(folder: Path) -> bool:
    """Whether another driver has taken this one's place."""
    path = folder / SUPERSEDED
    return path.exists() and str(os.getpid()) in path.read_text().split()


def write_batch(part: DataFrame, tx: EpochWrites, output: str, folder: Path) -> None:
    """A micro-batch of `both`: the table, OUTPUT, and its tens in OUTPUT-alerts."""
    if (folder / MERGING).exists():
        tx.merge(part, on="target.value = source.value")
    else:
        tx.delta(part)
    tx.topic(part, output)
    tx.topic(part.where(f"int(split(value, ':')[0]) % {EVERY} = 0"), output + ALERTS)


def query_of(
    spark: SparkSession, kind: str, servers: str, source: str, output: str, folder: Path
) -> DataStreamWriter:
    """The query, not started yet."""
    stream = (
        spark.readStream.format("headwater")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .load()
    )
    rows = output_rows(stream)

    def batch(part: DataFrame, _epoch: int, tx: EpochWrites) -> None:
        write_batch(part, tx, output, folder)

    if kind == BOTH:
        table = str(folder / "table")
        both = headwater_spark.exactly_once(batch, bootstrap_servers=servers, table=table)
        writer = rows.writeStream.foreachBatch(both)
    else:
        writer = rows.writeStream.format("headwater").option("kafka.bootstrap.servers", servers)
        writer = writer.option("topic", output)
        if os.environ.get("HEADWATER_SPARK_PLANT") == "at-least-once":
            writer = writer.option("headwater.delivery", "at-least-once")
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    return writer.trigger(processingTime=TRIGGER)


def main(kind: str, servers: str, source: str, output: str, folder: str, master: str) -> None:
    """Run the query, again and again; raises when it fails in a superseded driver."""
    os.environ["HEADWATER_SPARK_STARTED"] = str(int(time.time()))
    spark = headwater_spark.session(master, delta=kind == BOTH, conf=settings(os.environ))
    spark.sparkContext.setLogLevel("ERROR")
    while True:
        query = query_of(spark, kind, servers, source, output, Path(folder)).start()
        print("started", query.runId, flush=True)
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            if is_superseded(Path(folder)) or has_ended(spark):
                raise
            print("failed", error, flush=True)
            with (Path(folder) / RESTARTED).open("a") as out:
                out.write(f"{query.runId}\n")
            time.sleep(AGAIN_S)


if __name__ == "__main__":
    main(*sys.argv[1:])
