"""Tiering beside the streaming queries: what `headwater tier run` does, in a thread of the demo."""

from __future__ import annotations

import threading

from pyspark.sql import SparkSession

from headwater.clock import Clock
from headwater.errors import HeadwaterError
from headwater_spark.tiering.job import TopicTier

TIER_INTERVAL_S = 8.0


def tier_all(spark: SparkSession, servers: str, topic: str, clock: Clock) -> tuple[int, str]:
    """Tier everything committed of a topic: rows written, and where its table is."""
    job = TopicTier(spark, topic, servers, clock)
    try:
        rows = 0
        while not (done := job.round()).idle:
            rows += done.rows
        return rows, job.location.uri
    finally:
        job.close()


class Tiering:
    """Rounds over some topics until stopped; then one that takes what is left."""

    def __init__(self, spark: SparkSession, servers: str, topics: list[str], clock: Clock) -> None:
        self._jobs = [TopicTier(spark, topic, servers, clock) for topic in topics]
        self._thread = threading.Thread(target=self._run, name="demo-tiering", daemon=True)
        self.stopping = threading.Event()
        self.rows = 0
        self.refusals: list[str] = []
        """Rounds that failed, as around a kill; the next round takes their rows."""

    def start(self) -> None:
        """Begin the rounds."""
        self._thread.start()

    def finish(self) -> None:
        """End the rounds, take what is left, close. Raises HeadwaterError when that fails."""
        self.stopping.set()
        self._thread.join()
        for job in self._jobs:
            while not (done := job.round()).idle:
                self.rows += done.rows
            job.close()

    def hint(self) -> str:
        """For the screen."""
        return f" | {self.rows:,} in Delta"

    def _run(self) -> None:
        while not self.stopping.wait(TIER_INTERVAL_S):
            for job in self._jobs:
                try:
                    self.rows += job.round().rows
                except (HeadwaterError, OSError) as e:
                    self.refusals.append(str(e))
