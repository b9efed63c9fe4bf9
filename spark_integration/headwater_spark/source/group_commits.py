"""A streaming query's progress as a consumer group's offsets, for lag tools.

Spark calls a source's `commit` one batch late (never for the last batch of Trigger.AvailableNow),
so offsets are committed by a listener, after the batch that they describe.
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
    """Commit the progress of this session's headwater queries to a group, for lag tools.

    The checkpoint stays the truth: the group's offsets are never read. Stop it with `.stop()`.
    """
    listener = GroupCommits(spark, bootstrap_servers, group_id)
    spark.streams.addListener(listener)
    return listener


class GroupCommits(StreamingQueryListener):
    """Commits each batch's end offsets after the batch."""

    def __init__(self, spark: SparkSession, bootstrap_servers: str, group_id: str) -> None:
        super().__init__()
        self._spark = spark
        self._consumer = Consumer(
            bootstrap_servers=bootstrap_servers, group_id=group_id, enable_auto_commit=False
        )

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's
        """Nothing to commit yet."""

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802 - Spark's
        """Nothing new to commit."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 - Spark's
        """What was reached is committed already."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 - Spark's
        """Commit; a failure is told and leaves the query alone."""
        for end, _ in source_offsets(event.progress):
            offsets: dict[TopicPartition | tuple[str, int], OffsetAndMetadata | int] = dict(end)
            try:
                self._consumer.commit(offsets)
            except (HeadwaterError, OSError) as e:
                logger.warning("group offsets were not committed: %s", e)

    def stop(self) -> None:
        """No more commits."""
        self._spark.streams.removeListener(self)
        self._consumer.close()
