"""Flow 4, the quality monitor: produced against normally consumed records, by ten minutes.

Produced are the records of the topics, consumed the rows of the tables. A gap that closes again
needs no one; one that lasts and widens is an alarm that names devices and servers by their places.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from city.clock import BUCKET_MS, DAY_START_MS
from city.fields import FACE_WIRE, FACES, VEHICLES, Alarm, city_text
from city.flows import City, Figure, Site
from city.gaps import Bucket, GapRule, suspects
from city.latency import in_buckets, of_buckets
from city.oracle import QualityTruth
from city.rounds import BUCKETS, Rounds

FLOW = "quality monitor"
KEY = "records that nobody can read"
TOPICS_WATCHED = (VEHICLES, FACES)
DEVICE = ("record_id", "device_ip", "recognition_ip")

Cell = tuple[int, str, str]
"""Bucket, device, what recognises for it."""


def produced_records(city: City, site: Site, topic: str, first: int, end: int) -> DataFrame:
    """A topic's records that were sent in some buckets: record_id, device_ip, recognition_ip."""
    start_ms, end_ms = (DAY_START_MS + bucket * BUCKET_MS for bucket in (first, end))
    reader = (
        city.spark.read.format("headwater")
        .schema("value binary, timestamp timestamp")
        .options(**site.spark_options)
        .option("subscribe", topic)
        .option("startingTimestamp", str(start_ms))
        .option("startingOffsetsByTimestampStrategy", "latest")
    )
    if end < BUCKETS and not site.is_successor:
        # Senders keep the order of time but for the records that another site took over.
        reader = reader.option("endingTimestamp", str(end_ms + BUCKET_MS))
    schema = ", ".join(f"`{FACE_WIRE[name]}` STRING" for name in DEVICE)
    record = f.from_json(f.col("value").cast("string"), schema)
    columns = [f.col(f"record.`{FACE_WIRE[name]}`").alias(name) for name in DEVICE]
    sent_ms = f.unix_millis("timestamp")
    rows = reader.load().where((sent_ms >= start_ms) & (sent_ms < end_ms))
    return rows.select(record.alias("record"), "timestamp").select(
        *columns, f.col("timestamp").alias("sent_time")
    )


def counted(rows: DataFrame) -> Counter[Cell]:
    """Records by bucket, device and what recognises for it."""
    place = (in_buckets(rows, "sent_time").alias("bucket"), "device_ip", "recognition_ip")
    found = rows.groupBy(*place).count().collect()
    return Counter({(r["bucket"], r["device_ip"], r["recognition_ip"]): r["count"] for r in found})


class Quality:
    """The flow."""

    name = FLOW

    def __init__(self) -> None:
        self.produced: Counter[Cell] = Counter()
        self.consumed: Counter[Cell] = Counter()
        self._rule = GapRule()

    def start(self, city: City) -> None:
        """Begin to compare."""
        self._city = city
        self._rounds = Rounds(city, "quality", self._look)
        self._rounds.start()

    def stop(self) -> None:
        """Compare what is left."""
        self._rounds.finish()

    def buckets(self) -> list[Bucket]:
        """Produced and consumed by bucket, as far as they have been compared."""
        produced, consumed = per_bucket(self.produced), per_bucket(self.consumed)
        return [Bucket(n, produced[n], consumed[n]) for n in sorted(produced)]

    def ranking(self, first: int = 0) -> Counter[tuple[str, str]]:
        """Abnormal records by device and what recognises for it, from a bucket on."""
        gap: Counter[tuple[str, str]] = Counter()
        for (bucket, device, recognition), count in list(self.produced.items()):
            if bucket >= first:
                gap[device, recognition] += count - self.consumed[bucket, device, recognition]
        return gap

    def _look(self, first: int, end: int) -> None:
        produced: Counter[Cell] = Counter()
        consumed: Counter[Cell] = Counter()
        for topic in TOPICS_WATCHED:
            produced.update(self._produced(topic, first, end))
            consumed.update(counted(of_buckets(self._city.stored(topic), first, end)))
        self.produced.update(produced)
        self.consumed.update(consumed)
        for one in self.buckets():
            if first <= one.number < end:
                self._see(one)

    def _produced(self, topic: str, first: int, end: int) -> Counter[Cell]:
        city = self._city
        produced = produced_records(city, city.site, topic, first, end)
        if city.site.is_successor:
            produced = produced.dropDuplicates(["record_id"])
        return counted(produced)

    def _see(self, bucket: Bucket) -> None:
        change = self._rule.see(bucket)
        if change is True:
            at = city_text(DAY_START_MS + (bucket.number + 1) * BUCKET_MS)
            self._city.notifier.open(Alarm(FLOW, KEY, at, self._text(bucket)))
        elif change is False:
            self._city.notifier.close(FLOW, KEY)

    def _text(self, bucket: Bucket) -> str:
        """The alarm in words: how much, which places, which server."""
        places = self._city.world.deployment.places
        found = suspects(self.ranking(self._rule.run[0].number))
        gap = bucket.produced - bucket.consumed
        text = f"{gap} of {bucket.produced} records in ten minutes cannot be read: "
        text += "; ".join(places[device] for device in found.devices[:5])
        if found.server is not None:
            text += f". Suspect {places[found.server]}"
        return text

    def figures(self) -> Sequence[Figure]:
        """Counts by bucket, both shapes of gap, the ranking and the alarm against the truth."""
        return quality_figures(self, self._city, self._rule)


def per_bucket(cells: Counter[Cell]) -> Counter[int]:
    """Records by bucket. The pages' thread asks while a round counts."""
    found: Counter[int] = Counter()
    for (bucket, _, _), count in list(cells.items()):
        found[bucket] += count
    return found


def quality_figures(quality: Quality, city: City, rule: GapRule) -> list[Figure]:
    """The proof's rows of this flow."""
    truth, cameras = QualityTruth.of(city.world), city.world.deployment.cameras
    counts = {b.number: (b.produced, b.consumed) for b in quality.buckets()}
    numbers = {*counts, *truth.counts}
    differing = sum(counts.get(n, (0, 0)) != truth.counts.get(n, (0, 0)) for n in numbers)
    opened = city.notifier.openings(FLOW)
    text = opened[0].text if opened else ""
    failing = [cameras[n] for n in city.world.faults.failing]
    places = [camera.place for camera in failing] if truth.alarms else []
    named = [camera.place for camera in failing if camera.place in text]
    suspected = [s.ip for s in city.world.deployment.servers if f"Suspect {s.place}" in text]
    short = [(gap.first, gap.last) for gap in rule.short_gaps]
    ranking = [device for (device, _), _ in quality.ranking().most_common(len(truth.worst))]
    produced, consumed = (sum(column) for column in zip(*counts.values(), strict=True))
    return [
        Figure.same(FLOW, "produced records", truth.produced, produced),
        Figure.same(FLOW, "normally consumed", truth.normal, consumed),
        Figure.same(FLOW, "ten-minute buckets that differ", 0, differing),
        Figure.same(FLOW, "short gaps without alarm, in buckets", truth.short_gaps, short),
        Figure.same(FLOW, "alarms, by city time", truth.alarms, [a.city_time for a in opened]),
        Figure.same(FLOW, "places named", places, named),
        Figure.same(FLOW, "server suspected", truth.suspected, suspected),
        Figure.same(FLOW, "worst devices", truth.worst, ranking),
    ]
