"""Tiers one topic: plans on the driver, writes files in a Spark job, makes one Delta commit.

A round compares the table's tiered ends with the leaders' last stable offsets, plans ranges of
offsets, runs one Spark job whose tasks write files, makes one Delta commit that is fenced by those
ends, and notifies the brokers. A job that is killed at any point loses nothing: the next round
plans from the table again, and files that were not committed are left to vacuum. Two jobs on one
topic only waste work.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession

from headwater.clock import Clock
from headwater.errors import UsageError
from headwater.system import SystemClock
from headwater_spark import connect_session
from headwater_spark.options import EARLIEST, LATEST, READ_COMMITTED, servers_of, store_options
from headwater_spark.source.broker_metadata import Brokers, Topic
from headwater_spark.spark_session import job_errors
from headwater_spark.task_security import NO_SECURITY, TaskSecurity, task_security
from headwater_spark.task_tokens import TOKENS
from headwater_spark.tiering.table_maintenance import TableMaintenance
from headwater_spark.tiering.task import FACTS_SCHEMA, TierTask, arrow_tasks, unpack
from headwater_tier.commit import commit_facts
from headwater_tier.commit_fence import FileFacts, Outcome
from headwater_tier.delta import LogTable
from headwater_tier.offset_ranges import PartitionBounds, TierRange, plan_ranges, task_ranges
from headwater_tier.table_location import ENABLE_KEY, locate_table

logger = logging.getLogger(__name__)

INTERVAL_KEY = "delta.interval.ms"
ROUND_OFFSETS_MAX = 20_000_000
"""Of all partitions together: limits a round's time, and the work that a crash repeats."""


@dataclass(frozen=True, slots=True)
class Round:
    """The result of one round."""

    topic: str
    rows: int
    files: int
    bytes_written: int
    offsets: int
    version: int | None
    """The table version of the round's commit; None when there was nothing to tier."""
    discarded: bool = False
    """Another tier job committed first; the next round plans from its commit."""
    behind: bool = False
    """Committed records are left that did not fit into the round."""

    @property
    def idle(self) -> bool:
        """True when there was nothing to tier."""
        return self.version is None and not self.discarded


class TopicTier:
    """Tiers one topic in rounds. Belongs to one thread."""

    def __init__(
        self,
        spark: SparkSession,
        topic: str,
        bootstrap_servers: str,
        clock: Clock,
        *,
        tables_uri: str | None = None,
        storage_options: tuple[tuple[str, str], ...] = (),
        parallelism: int | None = None,
        security: TaskSecurity = NO_SECURITY,
    ) -> None:
        self._spark = spark
        self._brokers = Brokers(bootstrap_servers, security=security)
        self._security = security
        self._servers = bootstrap_servers
        self._clock = clock
        self._parallelism = parallelism or connect_session.parallelism(spark)
        self.topic = self._brokers.topics([topic])[topic]
        self.location = locate_table(
            self._brokers, self.topic, tables_uri=tables_uri, storage_options=storage_options
        )
        self._maintenance = TableMaintenance(spark, self._brokers, clock, self.location)

    def enable(self) -> bool:
        """Set `remote.storage.enable` on the topic; False if it was set already.

        Only with it do brokers keep local segments until they are tiered, and serve old offsets
        from the table.
        """
        found = self._brokers.topic_configs(self.topic.name, (ENABLE_KEY,))
        if found.get(ENABLE_KEY) == "true":
            return False
        self._brokers.set_topic_config(self.topic.name, ENABLE_KEY, "true")
        return True

    def round(self) -> Round:
        """Tier the records committed by now, then maintain the table. Raises HeadwaterError."""
        self._follow_topic()
        snapshot = LogTable.create(self.location, self.topic.partitions).snapshot
        bounds = self._bounds()
        most = math.ceil(ROUND_OFFSETS_MAX / max(1, len(bounds)))
        ranges = plan_ranges(snapshot.ends, bounds, offsets_max=most)
        done = self._tier(ranges) if ranges else Round(self.topic.name, 0, 0, 0, 0, None)
        behind = any(r.end_offset < bounds[r.partition].last_stable_offset for r in ranges)
        log_starts = {p: bound.log_start_offset for p, bound in bounds.items()}
        self._maintenance.round(self.topic, snapshot, log_starts)
        return replace(done, behind=behind)

    def interval_s(self) -> float:
        """The topic's `delta.interval.ms`: the longest time between commits."""
        found = self._brokers.topic_configs(self.topic.name, (INTERVAL_KEY,))
        return int(found[INTERVAL_KEY]) / 1000

    def close(self) -> None:
        """Close every connection."""
        self._brokers.close()

    def _tier(self, ranges: Sequence[TierRange]) -> Round:
        offsets = sum(r.end_offset - r.start_offset for r in ranges)
        facts = self._run(ranges)
        result = commit_facts(self.location, ranges, facts, clock=self._clock)
        if result.outcome is not Outcome.DONE:
            logger.warning("tiering of %s: %s", self.topic.name, result.detail)
            return Round(self.topic.name, 0, 0, 0, 0, None, discarded=True)
        self._brokers.hint(self.topic)
        rows, size = sum(f.rows for f in facts), sum(f.size_bytes for f in facts)
        return Round(self.topic.name, rows, len(facts), size, offsets, result.version)

    def _follow_topic(self) -> None:
        """Refresh the topic's partitions and leaders. Raises TopicReplacedError for another id."""
        found: Topic = self._brokers.topics([self.topic.name])[self.topic.name]
        if found.uuid != self.topic.uuid:
            raise TopicReplacedError(
                f"topic {found.name} was deleted and created again (id {self.topic.topic_id}, now"
                f" {found.topic_id}): start `headwater tier run` again; the old table is unchanged"
            )
        self.topic = found

    def _bounds(self) -> dict[int, PartitionBounds]:
        """The leaders' log start and last stable offsets, by partition."""
        partitions = [(self.topic.name, p) for p in range(self.topic.partitions)]
        earliest = self._brokers.list_offsets(dict.fromkeys(partitions, EARLIEST))
        stable = self._brokers.list_offsets(dict.fromkeys(partitions, LATEST), READ_COMMITTED)
        return {tp[1]: PartitionBounds(earliest[tp], stable[tp]) for tp in partitions}

    def _run(self, ranges: Sequence[TierRange]) -> list[FileFacts]:
        security = TOKENS.of(self._servers, self._security)
        tasks = [
            TierTask(self._servers, self.location, part, security)
            for part in task_ranges(ranges, self._parallelism)
        ]
        count = len(tasks)
        with job_errors(self._spark, f"tiering {self.topic.name}"):
            connect_session.describe_jobs(self._spark, f"headwater tier {self.topic.name}")
            rows = (
                self._spark.range(0, count, 1, count)
                .mapInArrow(arrow_tasks(tasks), FACTS_SCHEMA)
                .collect()
            )
        return [unpack(row.facts) for row in rows]


def tier(
    spark: SparkSession,
    topic: str,
    *,
    bootstrap_servers: str | None = None,
    tables_uri: str | None = None,
    storage_options: dict[str, str] | None = None,
    options: Mapping[str, str] | None = None,
) -> Round:
    """Run rounds until every committed record is in the table; the rounds' sum.

    As `headwater tier run`: sets remote.storage.enable on a topic that lacks it. `options` are the
    security options of a reader (`cluster.spark_options()`); secrets among `storage_options` are
    references, as `env:NAME`.
    """
    worker = TopicTier(
        spark,
        topic,
        servers_of(bootstrap_servers, options or {}),
        SystemClock(),
        tables_uri=tables_uri,
        storage_options=store_options(storage_options or {}),
        security=task_security(options or {}),
    )
    try:
        worker.enable()
        total = Round(topic, 0, 0, 0, 0, None)
        while not (done := worker.round()).idle:
            total = Round(
                topic,
                total.rows + done.rows,
                total.files + done.files,
                total.bytes_written + done.bytes_written,
                total.offsets + done.offsets,
                done.version if done.version is not None else total.version,
            )
        return total
    finally:
        worker.close()


class TopicReplacedError(UsageError):
    """The topic was deleted, and another topic was created under its name."""
