"""Maintains a topic's table in the rounds of its tier job: log starts, retention, compaction.

The driver decides from the snapshot of the round; compaction runs in a Spark task, so that no
record passes through the driver. Every commit is fenced by its snapshot: a commit that loses
against another job changes nothing, and the next round decides again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping

import pyarrow as pa
from pyspark.sql import SparkSession

from headwater.clock import Clock
from headwater.system import SystemClock, SystemEntropy
from headwater_spark.connect_session import describe_jobs
from headwater_spark.source.broker_metadata import Brokers, Topic
from headwater_spark.spark_session import job_errors
from headwater_tier.compaction import COMPACT_FILES_MIN, compact, plan_compaction
from headwater_tier.delta import CommitUnknownError, Snapshot
from headwater_tier.log_starts import move_starts
from headwater_tier.retention import NO_LIMIT, Limits, RangeIndex, due_starts
from headwater_tier.table_names import TableLocation

logger = logging.getLogger(__name__)

RETENTION_EVERY_S = 60.0
POLICY_KEY, MS_KEY, BYTES_KEY = "cleanup.policy", "retention.ms", "retention.bytes"


class TableMaintenance:
    """Maintains one topic's table. Belongs to the thread of its `TopicTier`."""

    def __init__(
        self,
        spark: SparkSession,
        brokers: Brokers,
        clock: Clock,
        location: TableLocation,
        *,
        files_min: int = COMPACT_FILES_MIN,
    ) -> None:
        self._spark = spark
        self._brokers = brokers
        self._clock = clock
        self._location = location
        self._files_min = files_min
        self._index = RangeIndex(location)
        self._retention_at: float | None = None

    def round(self, topic: Topic, snapshot: Snapshot, log_starts: Mapping[int, int]) -> None:
        """Move log starts and compact files if due. `log_starts` are the leaders' log starts.

        Raises TableAccessError, SparkJobError.
        """
        try:
            if self._move_starts(topic, snapshot, log_starts):
                self._brokers.hint(topic)
            if plan_compaction(snapshot, files_min=self._files_min):
                self._compact()
        except CommitUnknownError as error:
            logger.info("maintenance of %s is retried in the next round: %s", topic.name, error)

    def _move_starts(self, topic: Topic, snapshot: Snapshot, log_starts: Mapping[int, int]) -> bool:
        """Apply DeleteRecords and retention; True when the table's starts moved."""
        wanted = {p: start for p, start in log_starts.items() if p in snapshot.ends}
        for partition, start in self._expired(topic, snapshot).items():
            wanted[partition] = max(start, wanted.get(partition, 0))
        before = snapshot.starts
        moved = {p: start for p, start in wanted.items() if start > before.get(p, 0)}
        if not moved:
            return False
        logger.info("log starts of %s move: %s", topic.name, moved)
        return move_starts(self._location, moved, clock=self._clock) != dict(before)

    def _expired(self, topic: Topic, snapshot: Snapshot) -> dict[int, int]:
        now = self._clock.monotonic()
        if self._retention_at is not None and now - self._retention_at < RETENTION_EVERY_S:
            return {}
        self._retention_at = now
        limits = self._limits(topic)
        if limits.unlimited or not snapshot.files:
            return {}
        ranges = self._index.ranges(snapshot)
        return due_starts(ranges, snapshot.starts, limits, self._clock.now_ms())

    def _limits(self, topic: Topic) -> Limits:
        found = self._brokers.topic_configs(topic.name, (POLICY_KEY, MS_KEY, BYTES_KEY))
        if "delete" not in found.get(POLICY_KEY, "delete"):
            return Limits()
        return Limits(
            int(found.get(MS_KEY, str(NO_LIMIT))), int(found.get(BYTES_KEY, str(NO_LIMIT)))
        )

    def compact_all(self) -> int:
        """Compact until no files are due; the number of files that were rewritten."""
        total = 0
        while replaced := self._compact():
            total += replaced
        return total

    def _compact(self) -> int:
        task = _compaction(self._location, self._files_min)
        with job_errors(self._spark, f"compacting the table of {self._location.topic}"):
            describe_jobs(self._spark, f"headwater compact {self._location.topic}")
            one = self._spark.range(0, 1, 1, 1)
            replaced = one.mapInArrow(task, "replaced BIGINT").collect()[0].replaced
        logger.info("%s: %d files compacted", self._location.topic, replaced)
        return int(replaced)


def _compaction(
    location: TableLocation, files_min: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The compaction as a function for `mapInArrow` over one row."""

    def read_sort_write_commit(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                yield pa.record_batch([pa.array([_compacted(location, files_min)])], ["replaced"])

    return read_sort_write_commit


def _compacted(location: TableLocation, files_min: int) -> int:
    try:
        return compact(location, clock=SystemClock(), entropy=SystemEntropy(), files_min=files_min)
    except CommitUnknownError as error:
        logger.info("compaction of %s is retried in the next round: %s", location.topic, error)
        return 0
