"""Commits the progress of streaming queries as a consumer group's offsets, for lag tools.

Spark calls a source's `commit` one batch late, and never for the last batch of
Trigger.AvailableNow. So a query listener commits each batch's offsets after the batch.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Mapping
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQueryListener

from headwater.client.consumer import Consumer
from headwater.client.security_options import security_keywords
from headwater.client.values import OffsetAndMetadata, TopicPartition
from headwater.errors import HeadwaterError, UsageError
from headwater_spark.options import servers_of
from headwater_spark.source.progress import source_offsets
from headwater_spark.task_security import task_security

logger = logging.getLogger(__name__)

LAST_EVENTS_S = 30.0
"""How long `stop` waits for the last events of queries that have ended."""


def commit_progress(
    spark: SparkSession,
    bootstrap_servers: str | None = None,
    group_id: str = "",
    *,
    query_names: Collection[str] | None = None,
    options: Mapping[str, str] | None = None,
) -> GroupCommits:
    """Commit the progress of this session's headwater queries to a consumer group.

    With `query_names`, only of the queries with these names: two queries on a topic need a group
    each. `options` are those of a reader's connection: `kafka.*` (`cluster.spark_options()`).
    Queries resume from their checkpoint; the group's offsets are never read. `.stop()` ends
    it, after the last batch of every query that has ended.
    """
    if not group_id:
        raise UsageError("which group? Give group_id=")
    consumer = Consumer(
        bootstrap_servers=servers_of(bootstrap_servers, options or {}),
        group_id=group_id,
        enable_auto_commit=False,
        **security_keywords(task_security(options or {}).found()),
    )
    listener = GroupCommits(spark, consumer, query_names)
    spark.streams.addListener(listener)
    return listener


class GroupCommits(StreamingQueryListener):
    """Query listener that commits each batch's end offsets."""

    def __init__(
        self, spark: SparkSession, consumer: Consumer, query_names: Collection[str] | None = None
    ) -> None:
        super().__init__()
        self._spark = spark
        self._consumer = consumer
        self._names = query_names
        self._runs: set[str] = set()
        """Runs whose last event has not come yet."""
        self._run_ended = threading.Condition()

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's
        """Remember the run: Spark calls this before `start()` returns."""
        with self._run_ended:
            self._runs.add(str(event.runId))

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802 - Spark's
        """Does nothing: no batch has ended."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 - Spark's
        """Forget the run: its last batch's event came before this one."""
        with self._run_ended:
            self._runs.discard(str(event.runId))
            self._run_ended.notify_all()

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 - Spark's
        """Commit the batch's end offsets; a failure is logged and does not affect the query."""
        if self._names is not None and event.progress.name not in self._names:
            return
        for end, _ in source_offsets(event.progress):
            offsets: dict[TopicPartition | tuple[str, int], OffsetAndMetadata | int] = dict(end)
            try:
                self._consumer.commit(offsets)
            except (HeadwaterError, OSError) as e:
                logger.warning("offsets of a consumer group were not committed: %s", e)

    def stop(self) -> None:
        """Commit what ended queries have read, remove the listener and close its consumer.

        Spark delivers events later than `awaitTermination` returns: without the wait, a program
        that stops right after Trigger.AvailableNow would lose the last batch's commit.
        """
        active = {str(query.runId) for query in self._spark.streams.active}
        with self._run_ended:
            is_done = self._run_ended.wait_for(lambda: self._runs <= active, LAST_EVENTS_S)
        if not is_done:
            logger.warning("the last events of %s queries did not come", len(self._runs - active))
        self._spark.streams.removeListener(self)
        self._consumer.close()
