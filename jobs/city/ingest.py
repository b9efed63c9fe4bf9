"""Flow 1, picture ingest: two streaming queries, vehicles and faces, into a Delta table each.

A query's offset is stored only after its rows are in the table, and Delta remembers the batch: no
row is lost or doubled, whenever the job dies. A batch begins when so many records wait, or so much
time has passed. Abnormal records are not stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from city.clock import DAY_START_MS, CityClock
from city.fields import ABNORMAL, FACE_WIRE, FACES, VEHICLE_WIRE, VEHICLES
from city.flows import City, Figure, Site
from city.query_starts import abandon, first_batch, save_progress, started
from headwater_spark import exactly_once

FLOW = "picture ingest"
RECORDS_MIN = {VEHICLES: 6_000, FACES: 2_000}
"""A batch begins when so many records wait ..."""
DELAY_MAX = "3s"
"""... or after this time."""
TRIGGER = "1 second"
WHO = {VEHICLES: "plate", FACES: "person"}
WIRE = {VEHICLES: VEHICLE_WIRE, FACES: FACE_WIRE}
CAPTURE_FORMAT = "yyyy-MM-dd HH:mm:ss"
LISTS = ("features",)


def value_schema(topic: str) -> str:
    """The schema of a topic's JSON values, by the records' own keys."""
    wire = WIRE[topic]
    kinds = {name: "ARRAY<DOUBLE>" if name in LISTS else "STRING" for name in wire}
    return ", ".join(f"`{key}` {kinds[name]}" for name, key in wire.items())


def ingest_time(clock: CityClock, real_ms: float) -> Any:
    """The column `ingest_time` of rows that are stored at a real time: `CityClock.ingest_ms`."""
    since_due = f.lit(real_ms - clock.real_start_ms) - (
        f.unix_millis("timestamp") - f.lit(DAY_START_MS)
    ) / f.lit(clock.factor)
    city_ms = f.unix_millis("timestamp") + since_due
    return f.timestamp_millis(city_ms.cast("bigint"))


def normal_rows(topic: str, records: DataFrame, clock: CityClock, real_ms: float) -> DataFrame:
    """Records (value, timestamp) as rows of the table; abnormal ones are left out."""
    parsed = f.from_json(f.col("value").cast("string"), value_schema(topic))
    columns = [f.col(f"record.`{key}`").alias(name) for name, key in WIRE[topic].items()]
    rows = records.select(parsed.alias("record"), "timestamp").select(*columns, "timestamp")
    return (
        rows.where(f.col(WHO[topic]) != ABNORMAL)
        .withColumn("capture_time", f.to_timestamp("capture_time", CAPTURE_FORMAT))
        .withColumn("ingest_time", ingest_time(clock, real_ms))
        .withColumnRenamed("timestamp", "sent_time")
    )


def store(
    topic: str, site: Site, clock: CityClock, *, merge: bool
) -> Callable[[DataFrame, int], None]:
    """The function that stores a micro-batch. With `merge` a row whose record id is in the table
    already is left as it is: producers that moved to another site send some records again."""

    def batch(records: DataFrame, epoch_id: int, tx: Any) -> None:
        del epoch_id
        rows = normal_rows(topic, records, clock, clock.real_now_ms())
        if merge:
            once = rows.dropDuplicates(["record_id"])
            same = "target.record_id = source.record_id"
            tx.merge(once, same, clauses=lambda merging: merging.whenNotMatchedInsertAll())
        else:
            tx.delta(rows)

    return exactly_once(batch, table=site.table(topic), options=site.spark_options)


def start_query(
    spark: SparkSession, topic: str, site: Site, clock: CityClock, *, merge: bool
) -> StreamingQuery:
    """Start the ingest of a topic at a site."""
    records = (
        spark.readStream.format("headwater")
        .schema("value binary, timestamp timestamp")
        .options(**site.spark_options)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("minOffsetsPerTrigger", str(RECORDS_MIN[topic]))
        .option("maxTriggerDelay", DELAY_MAX)
        .load()
    )
    return (
        records.writeStream.queryName(f"ingest-{topic}-{site.name}")
        .foreachBatch(store(topic, site, clock, merge=merge))
        .option("checkpointLocation", site.checkpoint(f"ingest-{topic}"))
        .trigger(processingTime=TRIGGER)
        .start()
    )


@dataclass(frozen=True)
class Flushes:
    """How often each of the two limits began a batch."""

    by_records: int
    by_time: int

    @classmethod
    def of(cls, rows: Sequence[int], records_min: int) -> Flushes:
        """From the rows of batches. A batch without rows is none."""
        counted = [count for count in rows if count > 0]
        by_records = sum(count >= records_min for count in counted)
        return cls(by_records, len(counted) - by_records)


class Ingest:
    """The flow: both queries at the site that works."""

    name = FLOW

    def __init__(self) -> None:
        self._queries: dict[str, StreamingQuery] = {}
        self._batches: dict[str, list[int]] = {topic: [] for topic in WIRE}

    def start(self, city: City) -> None:
        """Start both queries."""
        self._city = city
        self._begin(city.site, merge=False)
        for query in self._queries.values():
            first_batch(query, city.clock.clock)  # an empty one: it makes the table
        city.on_switch.append(self._move)

    def stop(self) -> None:
        """Store what is left."""
        for query in self._queries.values():
            query.processAllAvailable()
        self._end()

    def figures(self) -> Sequence[Figure]:
        """Both limits have begun batches."""
        rows = []
        for topic, batches in self._batches.items():
            found = Flushes.of(batches, RECORDS_MIN[topic])
            both = found.by_records > 0 and found.by_time > 0
            limits = f"{RECORDS_MIN[topic]:,} records, {DELAY_MAX}"
            text = f"{found.by_records} by records, {found.by_time} by time"
            rows.append(Figure(FLOW, f"{topic}: batches by each limit", limits, text, both))
        return rows

    def _begin(self, site: Site, *, merge: bool) -> None:
        city = self._city
        for topic in WIRE:
            Path(site.table(topic)).parent.mkdir(parents=True, exist_ok=True)
            with city.planners:
                query = start_query(city.spark, topic, site, city.clock, merge=merge)
                started(query, city.clock.clock)
            self._queries[topic] = query

    def _move(self, site: Site) -> None:
        """Go on at another site, from the begin of its topics, with MERGE."""
        for topic, query in self._queries.items():
            self._note(topic, query)
            abandon(query)
        self._begin(site, merge=True)

    def _end(self) -> None:
        for topic, query in self._queries.items():
            query.stop()
            if query.exception() is not None:
                raise query.exception()
            self._note(topic, query)

    def _note(self, topic: str, query: StreamingQuery) -> None:
        # The first batch of a run waits for neither limit.
        self._batches[topic] += [p.numInputRows for p in query.recentProgress][1:]
        save_progress(query, self._city.out / "progress")
