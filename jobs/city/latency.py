"""Flow 3, the latency monitor: from capture to the row in the table, by hour, from stored rows.

While the day runs it looks at each ten minutes whose rows are stored, and tells operators when
their mean passes the threshold, once for each time that it does. A row that was stored before it
was captured betrays a device whose clock is ahead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from city.clock import BUCKET_MS, DAY_START_MS, HOUR_MS
from city.fields import FACES, VEHICLES, Alarm, city_text
from city.flows import City, Figure
from city.oracle import LatencyTruth
from city.rounds import Rounds
from city.tables import read_columns

FLOW = "latency monitor"
THRESHOLD_S = 60.0
"""An alarm opens when the mean of ten minutes is above."""
CLOSE_S = 30.0
"""It closes when the mean is below."""
KEY = "mean latency"
SHOWN_HOURS = (3, 8, 12, 18)
STORE_P99_S = 45.0
"""Bound of the time from sending to the stored row, in real seconds on a machine of two cores."""
LATENCY_S = "(unix_millis(ingest_time) - unix_millis(capture_time)) / 1000.0D"


def in_buckets(rows: DataFrame, column: str) -> Any:
    """The ten-minute bucket of the day of a time column."""
    return ((f.unix_millis(column) - DAY_START_MS) / BUCKET_MS).cast("int")


def of_buckets(rows: DataFrame, first: int, end: int) -> DataFrame:
    """The rows that were sent in these ten-minute buckets. Delta passes over files by the time."""
    start, stop = (
        f.timestamp_millis(f.lit(DAY_START_MS + bucket * BUCKET_MS)) for bucket in (first, end)
    )
    return rows.where((f.col("sent_time") >= start) & (f.col("sent_time") < stop))


def hourly_curve(rows: DataFrame) -> dict[int, float]:
    """Hour of capture -> mean latency in seconds, of stored rows."""
    hour = ((f.unix_millis("capture_time") - DAY_START_MS) / HOUR_MS).cast("int")
    means = rows.groupBy(hour.alias("hour")).agg(f.avg(f.expr(LATENCY_S)).alias("mean_s"))
    return {row["hour"]: row["mean_s"] for row in means.collect()}


def fast_clocks(rows: DataFrame) -> dict[str, int]:
    """Device -> its rows that were stored before they were captured."""
    early = rows.where(f.col("ingest_time") < f.col("capture_time"))
    return {r["device_ip"]: r["count"] for r in early.groupBy("device_ip").count().collect()}


class Threshold:
    """Opens above one limit, closes below a lower one."""

    def __init__(self, open_above: float, close_below: float) -> None:
        self._open_above = open_above
        self._close_below = close_below
        self.is_open = False

    def see(self, value: float) -> bool | None:
        """True when it opens now, False when it closes now, None otherwise."""
        if not self.is_open and value > self._open_above:
            self.is_open = True
            return True
        if self.is_open and value < self._close_below:
            self.is_open = False
            return False
        return None


class Latency:
    """The flow."""

    name = FLOW

    def __init__(self) -> None:
        self._threshold = Threshold(THRESHOLD_S, CLOSE_S)
        self._means: dict[int, float] = {}
        """Bucket of sending -> mean latency in seconds, of both kinds."""

    @property
    def means(self) -> dict[int, float]:
        """Bucket -> mean latency in seconds, so far."""
        return dict(self._means)

    def start(self, city: City) -> None:
        """Begin to look at stored rows."""
        self._city = city
        self._rounds = Rounds(city, "latency", self._look)
        self._rounds.start()

    def stop(self) -> None:
        """Look at what is left."""
        self._rounds.finish()

    def _look(self, first: int, end: int) -> None:
        """Buckets `first` to `end` are stored: their means, in order."""
        sums: dict[int, list[float]] = {}
        for topic in (VEHICLES, FACES):
            rows = of_buckets(self._city.stored(topic), first, end)
            bucket = in_buckets(rows, "sent_time")
            found = rows.groupBy(bucket.alias("bucket")).agg(
                f.sum(f.expr(LATENCY_S)).alias("sum"), f.count("*").alias("rows")
            )
            for row in found.collect():
                total = sums.setdefault(row["bucket"], [0.0, 0.0])
                total[0] += row["sum"]
                total[1] += row["rows"]
        for bucket in sorted(sums):
            self._see(bucket, sums[bucket][0] / sums[bucket][1])

    def _see(self, bucket: int, mean_s: float) -> None:
        self._means[bucket] = mean_s
        at = city_text(DAY_START_MS + (bucket + 1) * BUCKET_MS)
        change = self._threshold.see(mean_s)
        if change is True:
            text = f"mean latency {mean_s:.0f} s from capture to storage, above {THRESHOLD_S:.0f} s"
            self._city.notifier.open(Alarm(FLOW, KEY, at, text))
        elif change is False:
            self._city.notifier.close(FLOW, KEY)

    def figures(self) -> Sequence[Figure]:
        """The curve and the early rows against the truth; the alarms; the time to the row."""
        city = self._city
        rows = city.stored(VEHICLES)
        curve, early = hourly_curve(rows), fast_clocks(rows)
        stored = [read_columns(city, topic, ["ingest_time"]) for topic in (VEHICLES, FACES)]
        truth = LatencyTruth.of(city.world, *stored)
        same = set(curve) == set(truth.curve) and all(
            abs(curve[hour] - truth.curve[hour]) < 0.001 for hour in curve
        )
        expected, found = shown_curve(truth.curve), shown_curve(curve)
        opened = [alarm.city_time[11:13] for alarm in city.notifier.openings(FLOW)]
        fast = city.world.deployment.cameras[city.world.faults.fast_clock].ip
        return [
            Figure(FLOW, "mean by hour, 24 hours", expected, found, same),
            Figure.same(FLOW, "stored before captured: rows by device", truth.early, early),
            Figure.same(FLOW, "device with a fast clock", [fast], list(early)),
            Figure.same(FLOW, "alarms, by hour", truth.alarm_hours, opened),
            Figure.at_most(FLOW, "sent to stored, p99", STORE_P99_S, truth.stored_p99_s, "s"),
        ]


def shown_curve(curve: dict[int, float]) -> str:
    """Some hours of a curve."""
    return ", ".join(f"{hour} h {curve.get(hour, 0.0):.1f} s" for hour in SHOWN_HOURS)
