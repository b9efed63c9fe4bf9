"""Cloned plates: two captures of one plate too far apart for the time between them.

An hour is judged when it has been closed for half an hour: by then the devices' queues have sent
all of its captures. The window begins half an hour before the hour, so that no pair is lost at its
edge. A pair is stored once, whenever its hour is judged again (MERGE).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pyspark.sql import DataFrame, SparkSession

from city.clock import DAY_MS, at_hour
from city.feeds import vehicle_id
from city.fields import VEHICLES, Alarm, city_text
from city.flows import City, Figure
from city.lookup import Checkpoint, checkpoints_of
from city.rounds import BUCKETS, Rounds
from city.world import World

FLOW = "clones"
SPEED_MAX_KMH = 160.0
LOOKBACK_MS = 1_800_000
CLOSED_AFTER_BUCKETS = 3
HOUR_BUCKETS = 6
HOURS_MIN = 3
"""A round judges at least so many hours: a MERGE costs seconds, an hour of the demo six."""
EARTH_KM = 6371.0

SCHEMA = (
    "plate STRING, first_record STRING, second_record STRING, first_checkpoint STRING, "
    "second_checkpoint STRING, first_time TIMESTAMP, second_time TIMESTAMP, km DOUBLE, kmh DOUBLE"
)

PAIRS = """
WITH captures AS (
  SELECT plate, record_id, checkpoint_id, capture_time FROM {stored}
  WHERE capture_time >= timestamp_millis({start_ms} - {lookback_ms})
    AND capture_time < timestamp_millis({end_ms})
),
pairs AS (
  SELECT plate,
    LAG(record_id) OVER passing AS first_record, record_id AS second_record,
    LAG(checkpoint_id) OVER passing AS first_checkpoint, checkpoint_id AS second_checkpoint,
    LAG(capture_time) OVER passing AS first_time, capture_time AS second_time
  FROM captures
  WINDOW passing AS (PARTITION BY plate ORDER BY capture_time, record_id)
),
measured AS (
  SELECT pairs.*, unix_millis(second_time) - unix_millis(first_time) AS took_ms,
    2 * {earth_km} * asin(sqrt(
      pow(sin(radians(there.latitude - here.latitude) / 2), 2)
      + cos(radians(here.latitude)) * cos(radians(there.latitude))
        * pow(sin(radians(there.longitude - here.longitude) / 2), 2))) AS km
  FROM pairs
  JOIN {checkpoints} AS here ON here.checkpoint_id = first_checkpoint
  JOIN {checkpoints} AS there ON there.checkpoint_id = second_checkpoint
  WHERE second_time >= timestamp_millis({start_ms})
)
SELECT plate, first_record, second_record, first_checkpoint, second_checkpoint,
  first_time, second_time, km, km * 3600000 / greatest(took_ms, 1) AS kmh
FROM measured
WHERE took_ms <= {lookback_ms} AND km * 3600000 > {speed_max} * took_ms
"""

MERGE = """
MERGE INTO delta.`{table}` AS known USING {found} AS found
ON known.first_record = found.first_record AND known.second_record = found.second_record
WHEN NOT MATCHED THEN INSERT *
"""


def clone_pairs(
    spark: SparkSession, stored: DataFrame, checkpoints: DataFrame, start_ms: int, end_ms: int
) -> DataFrame:
    """The pairs whose second capture lies in a span of city time."""
    return spark.sql(
        PAIRS,
        stored=stored,
        checkpoints=checkpoints,
        start_ms=start_ms,
        end_ms=end_ms,
        lookback_ms=LOOKBACK_MS,
        earth_km=EARTH_KM,
        speed_max=SPEED_MAX_KMH,
    )


def closed_hours(end_bucket: int) -> int:
    """How many hours are closed for half an hour when so many buckets are complete."""
    if end_bucket >= BUCKETS:
        return BUCKETS // HOUR_BUCKETS
    return max(0, (end_bucket - CLOSED_AFTER_BUCKETS) // HOUR_BUCKETS)


class Clones:
    """The flow."""

    name = FLOW

    def __init__(self) -> None:
        self._judged = 0

    def start(self, city: City) -> None:
        """Make the table, start the rounds."""
        self._city = city
        self._table = str(city.out / "tables" / "clones")
        self._places = {c.checkpoint_id: c for c in checkpoints_of(city.world.deployment)}
        spark = city.spark
        spark.sql(f"CREATE TABLE IF NOT EXISTS delta.`{self._table}` ({SCHEMA}) USING delta")
        rows = [(c.checkpoint_id, c.latitude, c.longitude) for c in self._places.values()]
        self._checkpoints = spark.createDataFrame(
            rows, "checkpoint_id STRING, latitude DOUBLE, longitude DOUBLE"
        )
        self._rounds = Rounds(city, FLOW, self._look)
        self._rounds.start()

    def stop(self) -> None:
        """Judge the rest of the day."""
        self._rounds.finish()

    def _look(self, _first_bucket: int, end_bucket: int) -> None:
        closed = closed_hours(end_bucket)
        is_last = end_bucket >= BUCKETS
        if closed - self._judged < (1 if is_last else HOURS_MIN):
            return
        city = self._city
        end_ms = at_hour(closed) + (DAY_MS if is_last else 0)  # a fast clock runs past midnight
        stored = city.stored(VEHICLES)
        found = clone_pairs(city.spark, stored, self._checkpoints, at_hour(self._judged), end_ms)
        rows = found.collect()
        if rows:
            new = city.spark.createDataFrame(rows, SCHEMA)
            city.spark.sql(MERGE.replace("{table}", self._table), found=new)
        for row in rows:
            city.notifier.open(self._alarm(row))
        self._judged = closed

    def _alarm(self, row: Any) -> Alarm:
        first, second = (
            self._places[row[name]] for name in ("first_checkpoint", "second_checkpoint")
        )
        at_ms = int(row.second_time.timestamp() * 1000)
        text = clone_text(row.plate, first, second, row.second_time - row.first_time, row.km)
        return Alarm(FLOW, row.second_record, city_text(at_ms), text)

    def figures(self) -> Sequence[Figure]:
        """The pairs of the table, against the truth's; every planted pair among them."""
        table = self._city.spark.read.format("delta").load(self._table)
        rows = table.select("first_record", "second_record").collect()
        found = [(row.first_record, row.second_record) for row in rows]
        truth = CloneTruth.of(self._city.world)
        told = {alarm.key for alarm in self._city.notifier.openings(FLOW)}
        return [
            Figure(
                FLOW,
                "pairs above 160 km/h",
                f"{len(truth.pairs):,} pairs",
                f"{len(found):,} pairs, {len(set(found) ^ truth.pairs):,} differ",
                sorted(found) == sorted(truth.pairs),
            ),
            Figure.same(FLOW, "planted clones found", truth.planted, truth.planted_in(found)),
            Figure.same(FLOW, "clones told", len({b for _, b in truth.pairs}), len(told)),
        ]


def clone_text(plate: str, first: Checkpoint, second: Checkpoint, took: Any, km: float) -> str:
    """An alarm's words."""
    seconds = int(took.total_seconds())
    return f"{plate}: {first.place}, and {seconds} s later {second.place}, {km:.0f} km away"


@dataclass(frozen=True)
class CloneTruth:
    """The pairs of the day, from the world alone."""

    pairs: set[tuple[str, str]]
    planted: int
    _cars: dict[str, int]
    _planted_cars: frozenset[int]

    @classmethod
    def of(cls, world: World) -> CloneTruth:
        """Consecutive sharp captures of a car, too fast for their distance."""
        truth = world.vehicles
        rows = np.flatnonzero(~truth.abnormal)
        order = rows[np.lexsort((rows, truth.capture_ms[rows], truth.who[rows]))]
        first, second = order[:-1], order[1:]
        took_ms = truth.capture_ms[second] - truth.capture_ms[first]
        km = world.deployment.distances_km[truth.camera[first], truth.camera[second]]
        fast = (truth.who[first] == truth.who[second]) & (took_ms <= LOOKBACK_MS)
        fast &= km * 3_600_000 > SPEED_MAX_KMH * took_ms
        pairs = {
            (vehicle_id(int(a)), vehicle_id(int(b)))
            for a, b in zip(first[fast], second[fast], strict=True)
        }
        cars = {vehicle_id(int(b)): int(truth.who[b]) for b in second[fast]}
        planted = frozenset(pair.car for pair in world.clones)
        return cls(pairs, len(planted), cars, planted)

    def planted_in(self, found: Sequence[tuple[str, str]]) -> int:
        """How many planted clones are among the pairs."""
        return len({self._cars.get(second) for _, second in found} & self._planted_cars)
