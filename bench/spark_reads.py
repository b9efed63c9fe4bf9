"""Topics of random values in both clusters, and batch reads of them by either connector."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
from measures import Bar, Figure, Peer, compare, create_topic
from peers import HeadwaterPeer, KafkaPeer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from headwater import Producer

PARTITIONS = 4
CHUNK_BYTES = 50_000_000
Pair = tuple[float, float]


def timed(work: Callable[[], None]) -> float:
    """Wall seconds of one call."""
    start = time.monotonic()
    work()
    return time.monotonic() - start


def connector(peer: Peer) -> str:
    """The peer's own format in Spark."""
    return "kafka" if isinstance(peer, KafkaPeer) else "headwater"


def fill(peer: Peer, topic: str, rows: int, value_bytes: int) -> None:
    """The same random values into either cluster, through the same SDK."""
    create_topic(peer, topic, PARTITIONS)
    generator = np.random.default_rng(7)
    chunk = CHUNK_BYTES // value_bytes
    with Producer(peer.bootstrap) as producer:
        for start in range(0, rows, chunk):
            count = min(chunk, rows - start)
            data = pa.py_buffer(generator.bytes(count * value_bytes))
            offsets = pa.array(np.arange(0, (count + 1) * value_bytes, value_bytes, np.int32))
            values = pa.Array.from_buffers(pa.binary(), count, [None, offsets.buffers()[1], data])
            producer.send_table(topic, pa.table({"value": values}), value="value")
        producer.flush(120)


def read(spark: SparkSession, peer: Peer, topic: str, schema: str | None) -> DataFrame:
    """A batch read of the whole topic by the peer's own connector."""
    reader = spark.read.format(connector(peer))
    if schema is not None and isinstance(peer, HeadwaterPeer):
        reader = reader.schema(schema)
    return (
        reader.option("kafka.bootstrap.servers", peer.bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )


def sum_lengths(frame: DataFrame, expected: int) -> None:
    """The measured query. Raises when the answer is wrong."""
    found = frame.agg(f.sum(f.length("value"))).first()
    if found is None or found[0] != expected:
        raise RuntimeError(f"sum(length(value)) is {found}, not {expected}")


def summary(name: str, pairs: list[Pair], rows: int, bar: float) -> dict[str, object]:
    """Seconds of both, pair by pair, as rows per second."""
    rates = [(Figure(rows / theirs), Figure(rows / ours)) for theirs, ours in pairs]
    return compare(name, rates, Bar(bar))


def kafka_stream(spark: SparkSession, kafka: KafkaPeer, topic: str) -> DataFrame:
    """A topic as a stream of Spark's own connector, from its start."""
    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", kafka.bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )


def write_to_delta(stream: DataFrame, folder: Path) -> None:
    """Write what a stream has now into a Delta table of the folder (availableNow)."""
    query = (
        stream.writeStream.format("delta")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(folder / "table"))
    )
    query.awaitTermination()
