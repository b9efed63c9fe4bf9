"""Tiering in a thread of the demo, as `headwater tier run --continuous` does it."""

from __future__ import annotations

import threading

from pyspark.sql import SparkSession

from flights.connection import Connection
from headwater.clock import Clock
from headwater.errors import HeadwaterError
from headwater_spark.task_security import task_security
from headwater_spark.tiering.job import TopicTier

TIER_INTERVAL_S = 8.0


def tier_all(
    spark: SparkSession, connection: Connection, topic: str, clock: Clock
) -> tuple[int, str]:
    """Tier all committed records of a topic: the rows written, and the table's URI."""
    job = _tier(spark, connection, topic, clock)
    try:
        rows = 0
        while not (done := job.round()).idle:
            rows += done.rows
        return rows, job.location.uri
    finally:
        job.close()


def _tier(spark: SparkSession, connection: Connection, topic: str, clock: Clock) -> TopicTier:
    security = task_security(connection.spark)
    return TopicTier(spark, topic, connection.servers, clock, security=security)


class Tiering:
    """Runs rounds over some topics until stopped, then tiers the rest."""

    def __init__(
        self, spark: SparkSession, connection: Connection, topics: list[str], clock: Clock
    ) -> None:
        self._jobs = [_tier(spark, connection, topic, clock) for topic in topics]
        self._thread = threading.Thread(target=self._run, name="demo-tiering", daemon=True)
        self.stopping = threading.Event()
        self.rows = 0
        self.refusals: list[str] = []
        """Errors of failed rounds, as around a kill; the next round tiers their records."""

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def finish(self) -> None:
        """Stop the thread, tier the rest, close. Raises HeadwaterError."""
        self.stopping.set()
        self._thread.join()
        for job in self._jobs:
            while not (done := job.round()).idle:
                self.rows += done.rows
            job.close()

    def progress(self) -> str:
        """The rows tiered so far, for the console."""
        return f" | {self.rows:,} in Delta"

    def _run(self) -> None:
        while not self.stopping.wait(TIER_INTERVAL_S):
            for job in self._jobs:
                try:
                    self.rows += job.round().rows
                except (HeadwaterError, OSError) as e:
                    self.refusals.append(str(e))
