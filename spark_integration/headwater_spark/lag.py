"""How far a streaming query is behind, and its progress as a consumer group's offsets.

Python sources report no metrics to Spark, and its `commit` call comes one batch late (never for the
last batch of Trigger.AvailableNow). So lag is read from a query's progress, and group offsets are
committed by a listener, after the batch that they describe.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQueryListener

from headwater import Consumer
from headwater.client.values import OffsetAndMetadata, TopicPartition
from headwater.errors import HeadwaterError
from headwater_spark import positions

logger = logging.getLogger(__name__)


def lag(progress: Any) -> dict[tuple[str, int], int]:
    """Offsets between what a query has read and the newest it has seen, per partition.

    `progress` is `query.lastProgress` or a listener's `event.progress`. Offsets are not rows: gaps
    (control records, compaction) count.
    """
    result: dict[tuple[str, int], int] = {}
    for end, latest in _source_offsets(progress):
        for tp, offset in latest.items():
            result[tp] = max(0, offset - end.get(tp, 0))
    return result


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
        for end, _ in _source_offsets(event.progress):
            offsets = {TopicPartition(*tp): OffsetAndMetadata(n) for tp, n in end.items()}
            try:
                self._consumer.commit(offsets)
            except (HeadwaterError, OSError) as e:
                logger.warning("group offsets were not committed: %s", e)

    def stop(self) -> None:
        """No more commits."""
        self._spark.streams.removeListener(self)
        self._consumer.close()


def _source_offsets(
    progress: Any,
) -> list[tuple[Mapping[tuple[str, int], int], Mapping[tuple[str, int], int]]]:
    """(end, latest) of each headwater source in the progress."""
    found = []
    for source in progress["sources"] if isinstance(progress, dict) else progress.sources:
        end, latest = _field(source, "endOffset"), _field(source, "latestOffset")
        if end is None or positions.is_initial(end) or "to" not in end:
            continue
        position = positions.from_json(end)
        newest = positions.from_json(latest).end if latest and "to" in latest else position.end
        found.append((position.end, newest))
    return found


def _field(source: Any, name: str) -> dict[str, Any] | None:
    value = source.get(name) if isinstance(source, dict) else getattr(source, name)
    if isinstance(value, str):
        value = json.loads(value) if value and value != "null" else None
    return value if isinstance(value, dict) else None
