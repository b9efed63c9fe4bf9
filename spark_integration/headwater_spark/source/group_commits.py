"""Commits the progress of streaming queries as a consumer group's offsets, for lag tools.

Spark calls a source's `commit` one batch late, and never for the last batch of
Trigger.AvailableNow. So a query listener commits each batch's offsets after the batch.
"""

from __future__ import annotations

import logging
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQueryListener

from headwater.client.consumer import Consumer
from headwater.client.values import OffsetAndMetadata, TopicPartition
from headwater.errors import HeadwaterError
from headwater_spark.source.progress import source_offsets

logger = logging.getLogger(__name__)


def commit_progress(spark: SparkSession, bootstrap_servers: str, group_id: str) -> GroupCommits:
    """Commit the progress of this session's headwater queries to a consumer group.

    Queries resume from their checkpoint; the group's offsets are never read. `.stop()` ends it.
    """
    listener = GroupCommits(spark, bootstrap_servers, group_id)
    spark.streams.addListener(listener)
    return listener


class GroupCommits(StreamingQueryListener):
    """Query listener that commits each batch's end offsets."""

    def __init__(self, spark: SparkSession, bootstrap_servers: str, group_id: str) -> None:
        super().__init__()
        self._spark = spark
        self._consumer = Consumer(
            bootstrap_servers=bootstrap_servers, group_id=group_id, enable_auto_commit=False
        )

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's
        """Does nothing."""

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802 - Spark's
        """Does nothing: no batch has ended."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 - Spark's
        """Does nothing: every batch's offsets are committed."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 - Spark's
        """Commit the batch's end offsets; a failure is logged and does not affect the query."""
        for end, _ in source_offsets(event.progress):
            offsets: dict[TopicPartition | tuple[str, int], OffsetAndMetadata | int] = dict(end)
            try:
                self._consumer.commit(offsets)
            except (HeadwaterError, OSError) as e:
                logger.warning("offsets of a consumer group were not committed: %s", e)

    def stop(self) -> None:
        """Remove the listener and close its consumer."""
        self._spark.streams.removeListener(self)
        self._consumer.close()
