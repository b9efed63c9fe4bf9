"""The readers of the proof: each reads a topic or table by another path, as rows of the proof."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import confluent_kafka
import pyarrow as pa
import pyarrow.ipc
from pyspark.sql import SparkSession

from flights.connection import Connection
from flights.proof import Row
from headwater import Consumer, TopicPartition
from headwater.clock import Clock
from headwater.errors import HeadwaterError
from headwater_spark.source.union_read import table as union_table

READ_TIMEOUT_S = 120.0
POLL_S = 0.5
COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")


def rows_of_arrow(topic: str, table: pa.Table) -> list[Row]:
    """The rows of an Arrow table in the log table's or Kafka's columns."""
    micros = table["timestamp"].cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    headers = table["headers"].to_pylist()
    return [
        (topic, partition, offset, at // 1000, key, value, _headers(row))
        for partition, offset, at, key, value, row in zip(
            table["partition"].to_pylist(),
            table["offset"].to_pylist(),
            micros.to_pylist(),
            table["key"].to_pylist(),
            table["value"].to_pylist(),
            headers,
            strict=True,
        )
    ]


def _headers(row: list[dict[str, object]] | None) -> tuple[tuple[str, bytes | None], ...]:
    return tuple((str(h["key"]), h["value"]) for h in row or ())  # type: ignore[misc]


def by_sdk(connection: Connection, topic: str, clock: Clock) -> list[Row]:
    """Read the committed records from offset 0 to the end with `headwater.Consumer`."""
    rows: list[Row] = []
    with Consumer(
        bootstrap_servers=connection.servers,
        isolation_level="read_committed",
        **connection.sdk,
    ) as consumer:
        parts = [TopicPartition(topic, p) for p in range(consumer.partitions_for(topic))]
        ends = consumer.end_offsets(parts)
        consumer.assign(parts)
        consumer.seek_to_beginning(*parts)
        deadline = clock.monotonic() + READ_TIMEOUT_S
        while any(consumer.position(part) < ends[part] for part in parts):
            _require_time(clock, deadline, f"{topic} by the SDK")
            for records in consumer.poll(timeout_ms=int(POLL_S * 1000)).values():
                rows += [
                    (topic, r.partition, r.offset, r.timestamp, r.key, r.value, tuple(r.headers))
                    for r in records
                ]
    return rows


def by_confluent(connection: Connection, topic: str, clock: Clock) -> list[Row]:
    """Read from offset 0 to the end with librdkafka's consumer."""
    config = {
        **connection.librdkafka,
        "group.id": f"demo-proof-{topic}",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
    }
    consumer = confluent_kafka.Consumer(config)
    rows: list[Row] = []
    try:
        partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        consumer.assign([confluent_kafka.TopicPartition(topic, p, 0) for p in partitions])
        open_ends = set(partitions)
        deadline = clock.monotonic() + READ_TIMEOUT_S
        while open_ends:
            _require_time(clock, deadline, f"{topic} by confluent-kafka")
            for message in consumer.consume(10_000, POLL_S):
                error = message.error()
                if error is None:
                    rows.append(_confluent_row(topic, message))
                elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                    open_ends.discard(message.partition())
                else:
                    raise HeadwaterError(f"{topic} by confluent-kafka: {error}")
    finally:
        consumer.close()
    return rows


def _confluent_row(topic: str, message: confluent_kafka.Message) -> Row:
    _, timestamp = message.timestamp()
    place = (topic, message.partition(), message.offset(), timestamp)
    return (*place, message.key(), message.value(), tuple(message.headers() or ()))


def by_spark_delta(spark: SparkSession, topic: str, table_uri: str) -> list[Row]:
    """Read the table with Spark's Delta reader."""
    frame = spark.read.format("delta").load(table_uri)
    return rows_of_arrow(topic, frame.select(*COLUMNS[1:]).toArrow())


def by_union(spark: SparkSession, topic: str, connection: Connection) -> list[Row]:
    """Read table and log with `headwater_spark.table`."""
    frame = union_table(spark, topic, include_headers=True, options=connection.spark)
    return rows_of_arrow(topic, frame.select(*COLUMNS[1:]).toArrow())


def by_plain_deltalake(topic: str, table_uri: str, script: Path, scratch: Path) -> list[Row]:
    """Read the table with deltalake and pyarrow in a process without Headwater."""
    target = scratch / f"{topic}-plain.arrow"
    done = subprocess.run(
        [sys.executable, "-I", str(script), table_uri, str(target)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise HeadwaterError(f"deltalake cannot read {table_uri}: {done.stderr[-500:]}")
    with pa.memory_map(str(target)) as source:
        table = pyarrow.ipc.open_file(source).read_all()
    return rows_of_arrow(topic, table)


def _require_time(clock: Clock, deadline: float, reading: str) -> None:
    if clock.monotonic() > deadline:
        raise HeadwaterError(f"{reading}: not finished within {READ_TIMEOUT_S:.0f} s")
