"""The watch-list as a Spark query with micro-batches of 2 s: the same matches, for comparison.

The instructions are read anew for each micro-batch, so they take effect at run time here, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from operator import and_
from pathlib import Path

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from city.arrivals import Arrivals
from city.fields import (
    ABNORMAL,
    FACE_WIRE,
    FACES,
    TRACKS,
    TRACKS_BATCH,
    VEHICLE_WIRE,
    VEHICLES,
    WATCH_INSTRUCTIONS,
)
from city.flows import City, Figure, Site
from city.instructions import WatchInstruction, parse_instruction
from city.query_starts import abandon, save_progress, started
from city.watch import WatchList
from city.watch_oracle import LATE, watched
from headwater import Consumer, Producer
from headwater.errors import HeadwaterError, UsageError
from headwater_spark.source.progress import source_offsets

FLOW = "watch-list, micro-batch"
TRIGGER = "2 seconds"
READERS = 2
"""Tasks that read and match a micro-batch."""
COLUMNS = "topic string, partition int, offset bigint, value binary"
SEND_TIMEOUT_S = 10.0
POOL_PROPERTY, POOL = "spark.scheduler.pool", "watch"
"""Within a pool jobs run first come, first served: in the one of the ingest a match of a few
records would wait for its tables."""
POLL_MS = 100
INSTRUCTIONS_TIMEOUT_S = 10.0
_TEXTS = ("record_id", "checkpoint_id", "capture_time", "picture_url")


def value_schema() -> str:
    """The schema of both topics' values: what the match needs, by the records' own keys."""
    texts = {*VEHICLE_WIRE.values(), *FACE_WIRE.values()} - {FACE_WIRE["features"]}
    columns = [f"`{key}` STRING" for key in sorted(texts)]
    return ", ".join([*columns, f"`{FACE_WIRE['features']}` ARRAY<DOUBLE>"])


def condition(one: WatchInstruction) -> Column:
    """True for the records that an instruction matches: what `WatchList.matches` decides."""
    if one.traits:
        same = [f.col(f"row.`{VEHICLE_WIRE[name]}`") == value for name, value in one.traits]
        is_read = f.col(f"row.`{VEHICLE_WIRE['plate']}`") != ABNORMAL
        return reduce(and_, same, (f.col("topic") == VEHICLES) & is_read)
    if one.person:
        named = f.col(f"row.`{FACE_WIRE['person']}`") == one.person
        return (f.col("topic") == FACES) & named
    features = f.col(f"row.`{FACE_WIRE['features']}`")
    wanted = f.array(*[f.lit(number) for number in one.face])
    length = f.sqrt(_dot(features, features)) * f.sqrt(_dot(wanted, wanted))
    alike = _dot(features, wanted) >= f.lit(one.likeness) * length
    return (f.col("topic") == FACES) & (length > 0) & alike


def _dot(one: Column, other: Column) -> Column:
    products = f.zip_with(one, other, lambda a, b: a * b)
    return f.aggregate(products, f.lit(0.0), lambda total, product: total + product)


def points(records: DataFrame, instructions: Iterable[WatchInstruction]) -> DataFrame:
    """Records (topic, partition, offset, value) as records of the track topic."""
    parsed = f.from_json(f.col("value").cast("string"), value_schema())
    rows = records.withColumn("row", parsed)
    ids = [f.when(condition(one), f.lit(one.instruction_id)) for one in instructions]
    matched = rows.select(f.explode(f.array_compact(f.array(*ids))).alias("identity"), "*")
    place = f.concat_ws("-", "topic", "partition")
    told = f.struct(
        f.lit("point").alias("kind"),
        f.concat_ws("/", "identity", "row.record_id").alias("track_id"),
        f.col("identity").alias("instruction_id"),
        f.when(f.col("topic") == VEHICLES, "vehicle").otherwise("face").alias("what"),
        f.col("row.record_id"),
        *[f.col(f"row.`{VEHICLE_WIRE[name]}`").alias(name) for name in _TEXTS[1:]],
        place.alias("partition"),
        f.col("offset"),
    )
    value = f.to_json(told).cast("binary").alias("value")
    return matched.select(f.col("identity").cast("binary").alias("key"), value)


class WatchBatch:
    """The flow."""

    name = FLOW

    def __init__(self, first_reader: Callable[[], Arrivals]) -> None:
        """`first_reader`: the reader of the topics of the site at which the query runs."""
        self._first_reader = first_reader
        self._list = WatchList()
        self._query: StreamingQuery | None = None
        self._ends: dict[str, int] = {}
        """"topic-partition" -> where the last completed micro-batch ended."""
        self._failed: dict[int, Exception] = {}
        """Micro-batch -> why its points were not written."""

    def start(self, city: City) -> None:
        """Start the query."""
        self._city = city
        site = city.site
        self._site = site
        self._consumer = Consumer(WATCH_INSTRUCTIONS, bootstrap_servers=site.servers)
        self._consumer.seek_to_beginning(*self._consumer.assignment())
        self._producer = Producer(site.servers, client_id="city-watch-batch", linger_ms=0)
        Path(site.checkpoint("watch")).parent.mkdir(parents=True, exist_ok=True)
        records = (
            city.spark.readStream.format("headwater")
            .schema(COLUMNS)
            .options(**site.spark_options)
            .option("subscribe", f"{VEHICLES},{FACES}")
            .option("startingOffsets", "earliest")
            .load()
        )
        context = city.spark.sparkContext
        with city.planners:
            context.setLocalProperty(POOL_PROPERTY, POOL)
            query = (
                records.writeStream.queryName("watch-batch")
                .foreachBatch(self._match)
                .option("checkpointLocation", site.checkpoint("watch"))
                .trigger(processingTime=TRIGGER)
                .start()
            )
            context.setLocalProperty(POOL_PROPERTY, None)
            self._query = started(query, city.clock.clock)
        city.on_switch.append(self._leave)

    def _match(self, records: DataFrame, epoch_id: int) -> None:
        self._take_instructions()
        if not self._list.active:
            return
        try:
            self._report(records)
        except Exception as e:  # noqa: BLE001 - of a site that is lost: `stop` raises others
            self._failed[epoch_id] = e

    def _take_instructions(self) -> None:
        """All that are in the topic now; nothing of a site that is lost."""
        consumer = self._consumer
        try:
            ends = consumer.end_offsets(consumer.assignment())
        except HeadwaterError:
            return  # the write of the batch fails, too, and is noted
        deadline_s = self._city.clock.clock.monotonic() + INSTRUCTIONS_TIMEOUT_S
        while any(consumer.position(part) < end for part, end in ends.items()):
            for found in consumer.poll(POLL_MS).values():
                for record in found:
                    try:
                        self._list.apply(parse_instruction(record.value))
                    except UsageError:
                        continue  # the live service names it
            if self._city.clock.clock.monotonic() > deadline_s:
                return

    def _report(self, records: DataFrame) -> None:
        # A handful of points of thousands of records: Spark matches, the driver sends. Writing them
        # by Spark would start two Python processes for each micro-batch, to plan and to commit.
        matched = points(records, list(self._list.active.values())).coalesce(READERS)
        sent = [self._producer.send(TRACKS_BATCH, row.value, key=row.key)
                for row in matched.collect()]  # fmt: skip
        for one in sent:
            one.result(SEND_TIMEOUT_S)

    def _leave(self, _site: Site) -> None:
        """The comparison ends with its site."""
        query, self._query = self._query, None
        if query is not None:
            self._ends = ends_of(query, min(self._failed, default=None))
            save_progress(query, self._city.out / "progress")
            self._producer.close(timeout=0)
            abandon(query)

    def stop(self) -> None:
        """Match what is left."""
        if self._query is not None:
            self._query.processAllAvailable()
            self._ends = ends_of(self._query, None)
            save_progress(self._query, self._city.out / "progress")
            self._query.stop()
            self._producer.close()
            if self._failed:
                raise self._failed[min(self._failed)]
        self._consumer.close()

    def figures(self) -> Sequence[Figure]:
        """The same points as the truth's, up to the loss of the site."""
        return [self._figure(self._found)]

    @property
    def _found(self) -> set[tuple[str, int]]:
        return {
            (a.told["instruction_id"], a.row)
            for a in self._first_reader().points(TRACKS_BATCH)
            if a.told["instruction_id"] != LATE
        }

    def _figure(self, found: set[tuple[str, int]]) -> Figure:
        """Up to the last micro-batch the same points as those of the live service, which are
        compared with the truth; and none that the truth has not."""
        live = self._first_reader().points(TRACKS)
        must = {
            (a.told["instruction_id"], a.row)
            for a in live
            if a.told["instruction_id"] != LATE
            and a.told["offset"] < self._ends.get(a.told["partition"], 0)
        }
        may = {
            (one.name, row)
            for one in watched(self._city.world)
            if one.name != LATE
            for row in one.rows.tolist()
        }
        oracle = f"{len(must):,} points until its last batch"
        said = f"{len(found):,} points, {len(must - found):,} missing"
        return Figure(FLOW, "the same tracks", oracle, said, must <= found <= may)


def ends_of(query: StreamingQuery, failed: int | None) -> dict[str, int]:
    """Where the last micro-batch before the failed one ended: "topic-partition" -> offset."""
    done = [p for p in query.recentProgress if failed is None or p["batchId"] < failed]
    if not done:
        return {}
    ((ends, _latest),) = source_offsets(done[-1])
    return {f"{topic}-{partition}": end for (topic, partition), end in ends.items()}
