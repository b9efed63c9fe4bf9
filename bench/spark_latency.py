"""How long a micro-batch takes, and how long a poll without new data: limits in milliseconds."""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from measures import create_topic
from peers import HeadwaterPeer, bench_folder
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery
from rich.console import Console
from rich.table import Table
from spark_reads import PARTITIONS

from headwater import Producer
from headwater.system import SystemClock
from headwater_spark.source.batch_planner import Planner
from headwater_spark.source.source_options import source_options

MICRO_BATCH_OVER_RATE_MS = 300.0
IDLE_POLL_MS = 5.0
POLLS = 300
ROWS = 100
"""Per micro-batch: so few that the rows themselves cost nothing."""
RATE_ROWS_PER_S = 1000
BATCHES_WARM_UP = 5


@dataclass(frozen=True)
class Limit:
    """A median in milliseconds and what it may be at most."""

    work: str
    found_ms: float
    most_ms: float
    p99_ms: float

    @property
    def holds(self) -> bool:
        """True when the median is within the limit."""
        return self.found_ms <= self.most_ms

    def row(self) -> dict[str, object]:
        """For JSON."""
        return {
            "work": self.work,
            "median_ms": self.found_ms,
            "p99_ms": self.p99_ms,
            "limit_ms": self.most_ms,
            "holds": self.holds,
        }


def limit(work: str, times_ms: list[float], most_ms: float) -> Limit:
    """The median and the 99th percentile of these times."""
    ordered = sorted(times_ms)
    p99 = ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]
    return Limit(work, statistics.median(ordered), most_ms, p99)


def bench_latency(spark: SparkSession, headwater: HeadwaterPeer, batches: int) -> list[Limit]:
    """A micro-batch with data, into nothing and into the exactly-once sink, against Spark's rate
    source into nothing; and a poll of an idle topic."""
    rate_ms = rate_batches_ms(spark, batches)
    ours_ms = topic_batches_ms(spark, headwater, batches, lambda r: r.writeStream.format("noop"))
    sink_ms = sink_batches_ms(spark, headwater, batches)
    most = statistics.median(rate_ms) + MICRO_BATCH_OVER_RATE_MS
    return [
        limit("micro-batch with data (limit: rate source + 300 ms)", ours_ms, most),
        limit("the same into the exactly-once sink", sink_ms, most),
        limit("latestOffset, brokers asked, nothing new", idle_polls_ms(headwater), IDLE_POLL_MS),
    ]


def rate_batches_ms(spark: SparkSession, batches: int) -> list[float]:
    """Milliseconds of micro-batches of the rate source."""
    stream = spark.readStream.format("rate").option("rowsPerSecond", RATE_ROWS_PER_S).load()
    query = stream.writeStream.format("noop").start()
    while len(_batches_ms(query)) < batches + BATCHES_WARM_UP:
        time.sleep(0.2)
    query.stop()
    return _batches_ms(query)[BATCHES_WARM_UP:]


def sink_batches_ms(spark: SparkSession, peer: HeadwaterPeer, batches: int) -> list[float]:
    """Milliseconds of micro-batches that are written to another topic, each an epoch of its own."""
    target, folder = f"latency-out-{time.time_ns()}", bench_folder("latency-checkpoint")
    create_topic(peer, target, PARTITIONS)

    def into_topic(rows: DataFrame) -> DataStreamWriter:
        return (
            rows.select("key", "value")
            .writeStream.format("headwater")
            .option("kafka.bootstrap.servers", peer.bootstrap)
            .option("topic", target)
            .option("checkpointLocation", str(folder))
        )

    try:
        return topic_batches_ms(spark, peer, batches, into_topic)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def topic_batches_ms(
    spark: SparkSession,
    peer: HeadwaterPeer,
    batches: int,
    into: Callable[[DataFrame], DataStreamWriter],
) -> list[float]:
    """Milliseconds of micro-batches of a topic that gets some rows at a time; `into`
    makes the writer of the rows."""
    topic = f"latency-{time.time_ns()}"
    create_topic(peer, topic, PARTITIONS)
    rows = (
        spark.readStream.format("headwater")
        .option("kafka.bootstrap.servers", peer.bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    query = into(rows).start()
    with Producer(peer.bootstrap) as producer:
        for _ in range(batches + BATCHES_WARM_UP):
            for _ in range(ROWS):
                producer.send(topic, b"x" * 100)
            producer.flush(30)
            query.processAllAvailable()
    query.stop()
    found = _batches_ms(query)[BATCHES_WARM_UP:]
    if len(found) < batches:
        raise RuntimeError(f"{len(found)} micro-batches with data, not {batches}")
    return found


def _batches_ms(query: StreamingQuery) -> list[float]:
    return [
        float(progress["durationMs"]["triggerExecution"])
        for progress in query.recentProgress
        if progress["numInputRows"]
    ]


def idle_polls_ms(peer: HeadwaterPeer) -> list[float]:
    """Milliseconds of polls that ask the brokers; Spark's polls between them ask nobody."""
    topic = f"idle-{time.time_ns()}"
    create_topic(peer, topic, PARTITIONS)
    given = {"kafka.bootstrap.servers": peer.bootstrap, "subscribe": topic}
    planner = Planner(source_options(given, streaming=True), SystemClock())
    previous = planner.first()
    times = []
    for _ in range(POLLS):
        start = time.perf_counter()
        if planner.next(previous) is not None:
            raise RuntimeError(f"{topic} is not idle")
        times.append((time.perf_counter() - start) * 1000)
        time.sleep(0.01)
    planner.close()
    return times


def show_limits(limits: list[Limit]) -> None:
    """The table for people."""
    table = Table(title="Spark on Headwater: times, medians")
    for column in ("work", "median ms", "p99 ms", "limit ms", ""):
        table.add_column(column, justify="left" if column in ("work", "") else "right")
    for one in limits:
        table.add_row(
            one.work,
            f"{one.found_ms:.1f}",
            f"{one.p99_ms:.1f}",
            f"{one.most_ms:.0f}",
            "holds" if one.holds else "MISSED",
        )
    Console().print(table)
