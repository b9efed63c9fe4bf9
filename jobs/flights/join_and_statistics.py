"""The demo's ETL in Spark: flights joined with weather, hourly statistics, alerts; into Delta."""

from __future__ import annotations

import threading
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from flights.connection import Connection
from flights.records import ALERT_DELAY_MIN, ALERTS, FLIGHTS, WEATHER
from headwater.clock import Clock

FLIGHT_SCHEMA = (
    "flight_id BIGINT, dep_delay DOUBLE, carrier STRING, flight BIGINT, origin STRING, "
    "dest STRING, hour INT, time_hour TIMESTAMP, scheduled_ms BIGINT"
)
WEATHER_SCHEMA = (
    "weather_id BIGINT, origin STRING, wind_speed DOUBLE, precip DOUBLE, visib DOUBLE, "
    "time_hour TIMESTAMP"
)
# A day of the year takes a sixth of a second, so records that are seconds late are weeks late.
WATERMARK = "60 days"
TRIGGER = "10 seconds"
START_TIMEOUT_S = 60.0
STARTING = ("Initializing sources", "Initializing StreamExecution")
ROUGH_WIND_MPH = 20
POOR_VISIBILITY_MILES = 3


def stream(spark: SparkSession, connection: Connection, topic: str, schema: str) -> DataFrame:
    """A stream of a topic's JSON values as columns."""
    raw = (
        spark.readStream.format("headwater")
        .options(**connection.spark)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    parsed = f.from_json(f.col("value").cast("string"), schema)
    return raw.select(parsed.alias("row"), "key").select("row.*", "key")


def rough_weather() -> Column:
    """Rain, strong wind or poor visibility."""
    return (
        (f.col("precip") > 0)
        | (f.col("wind_speed") > ROUGH_WIND_MPH)
        | (f.col("visib") < POOR_VISIBILITY_MILES)
    )


def start_join(spark: SparkSession, connection: Connection, out: Path) -> StreamingQuery:
    """Flights joined with the weather at their airport in their hour, into a Delta table."""
    flights = stream(spark, connection, FLIGHTS, FLIGHT_SCHEMA)
    weather = stream(spark, connection, WEATHER, WEATHER_SCHEMA).select(
        "origin", "time_hour", rough_weather().alias("is_rough")
    )
    joined = flights.withWatermark("time_hour", WATERMARK).join(
        weather.withWatermark("time_hour", WATERMARK), ["origin", "time_hour"]
    )
    columns = ("flight_id", "origin", "dest", "hour", "time_hour", "dep_delay", "is_rough")
    return (
        joined.select(*columns)
        .writeStream.format("delta")
        .queryName("delays-and-weather")
        .option("checkpointLocation", str(out / "checkpoints" / "join"))
        .trigger(processingTime=TRIGGER)
        .start(str(out / "delays"))
    )


def start_statistics(spark: SparkSession, connection: Connection, out: Path) -> StreamingQuery:
    """Flights and mean delay per hour of the day and route, rewritten in every trigger."""
    table = str(out / "statistics")

    def replace(batch: DataFrame, _batch_id: int) -> None:
        batch.coalesce(1).write.format("delta").mode("overwrite").save(table)

    flights = stream(spark, connection, FLIGHTS, FLIGHT_SCHEMA)
    statistics = flights.groupBy("hour", "origin", "dest").agg(
        f.count("*").alias("flights"), f.avg("dep_delay").alias("mean_delay_min")
    )
    return (
        statistics.writeStream.outputMode("complete")
        .queryName("statistics")
        .foreachBatch(replace)
        .option("checkpointLocation", str(out / "checkpoints" / "statistics"))
        .trigger(processingTime=TRIGGER)
        .start()
    )


def alerts_checkpoint(out: Path) -> Path:
    """The checkpoint of the query that writes alerts."""
    return out / "checkpoints" / "alerts"


def start_alerts(spark: SparkSession, connection: Connection, out: Path) -> StreamingQuery:
    """Departures more than an hour late, into the alerts topic, exactly once."""
    flights = stream(spark, connection, FLIGHTS, FLIGHT_SCHEMA)
    late = flights.where(f.col("dep_delay") > ALERT_DELAY_MIN)
    value = f.to_json(f.struct("flight_id", "carrier", "flight", "origin", "dest", "dep_delay"))
    return (
        late.select("key", value.cast("binary").alias("value"))
        .writeStream.format("headwater")
        .queryName("alerts")
        .options(**connection.spark)
        .option("topic", ALERTS)
        .option("checkpointLocation", str(alerts_checkpoint(out)))
        .trigger(processingTime=TRIGGER)
        .start()
    )


def start_all(
    spark: SparkSession, connection: Connection, out: Path, clock: Clock
) -> list[StreamingQuery]:
    """Start the queries one after the other, as Spark gives the Python planner of each source ten
    seconds to start. Raises the error of a query that ends meanwhile."""
    queries = []
    for start in (start_alerts, start_statistics, start_join):
        query = start(spark, connection, out)
        queries.append(query)
        end = clock.monotonic() + START_TIMEOUT_S
        while query.status["message"] in STARTING and clock.monotonic() < end:
            if not query.isActive:
                query.awaitTermination(1)
            threading.Event().wait(0.1)
    return queries


def finish(queries: list[StreamingQuery]) -> None:
    """Let every query process all records, then stop it. Raises the error of a query that ended."""
    for query in queries:
        query.processAllAvailable()
        query.stop()
