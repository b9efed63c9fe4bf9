"""The stream reader of `option("shareGroup", ...)`: a share group as a queue source (KIP-932).

A batch's records are accepted once Spark has the batch in its commit log. What the driver has
acquired is in the batch's offset, and the tasks read just that. Until then the query holds them
(`held_queue`), or with `headwater.delivery=at-least-once` locks them (`share_queue`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from headwater.clock import Clock
from headwater.system import SystemClock
from headwater_spark.options import READ_UNCOMMITTED
from headwater_spark.source.batch_planner import Planner
from headwater_spark.source.held_queue import HeldQueue
from headwater_spark.source.input_partitions import Split
from headwater_spark.source.open_queue import checked_delivery, open_queue
from headwater_spark.source.read_task import CLIENT_ID, ReadTask, read
from headwater_spark.source.share_offsets import ShareBatch, from_json, nothing_yet
from headwater_spark.source.share_options import EXACTLY_ONCE, ShareOptions
from headwater_spark.source.share_queue import ShareQueue
from headwater_spark.task_security import TaskSecurity
from headwater_spark.task_tokens import TOKENS
from headwater_spark.worker_errors import without_traceback


@dataclass(frozen=True, slots=True)
class AcquiredSplits:
    """One task's work: the acquired ranges of one partition."""

    splits: tuple[Split, ...]


class SharePartition(InputPartition):
    """Spark's input partition that holds them, and how its task logs in."""

    def __init__(self, planned: AcquiredSplits, security: TaskSecurity) -> None:
        self.planned = planned
        self.security = security


class ShareStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches of a share group. One instance per query run, in a process of its own."""

    def __init__(
        self,
        options: ShareOptions,
        schema: pa.Schema,
        *,
        clock: Clock | None = None,
        queue: ShareQueue | HeldQueue | None = None,
    ) -> None:
        """`clock` and `queue` are for tests."""
        self.options = options
        self.schema = schema
        self._clock = clock or SystemClock()
        self._planner: Planner | None = None
        self._opened = queue
        self._ends: dict[tuple[str, int], int] | None = None

    @property
    def _queue(self) -> ShareQueue | HeldQueue:
        # Not in __init__: Spark also makes a reader to pickle it for tasks, which joins no group.
        if self._opened is None:
            self._opened = open_queue(self.options, self._clock, self._planned())
        return self._opened

    def _planned(self) -> Planner:
        if self._planner is None:
            self._planner = Planner(self.options.source, self._clock)
        return self._planner

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's
        """The kind of limit for Spark; its size is read from the options alone."""
        most = self.options.source.max_offsets_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's
        """The offset before the first batch."""
        return nothing_yet(self.options.group).to_json()

    @without_traceback()
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's
        """Fix the end offsets of this run of Trigger.AvailableNow."""
        self._ends = self._planned().newest()

    @without_traceback()
    def latestOffset(  # noqa: N802 - Spark's
        self, start: dict[str, Any], limit: ReadLimit
    ) -> dict[str, Any]:
        """Acquire the batch after `start`, whose records are accepted: it is complete. `start`
        itself when there is nothing to read."""
        before = self._batch(start)
        batch = self._queue.next(before, self._ends)
        return start if batch is None else batch.to_json()

    @without_traceback()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[SharePartition]:
        """A task per partition with acquired records; of a repeated batch the same records."""
        batch = self._batch(end)
        if not batch.acquired or start == end:
            return []
        if self.options.delivery == EXACTLY_ONCE:
            queue = self._queue
            assert isinstance(queue, HeldQueue)
            queue.planned(self._batch(start), batch)
        security = TOKENS.of(self.options.source.bootstrap_servers, self.options.source.security)
        return [
            SharePartition(
                AcquiredSplits(
                    tuple(
                        Split(*tp, first, last + 1, topic_id=batch.topic_ids[tp[0]])
                        for first, last in ranges
                    )
                ),
                security,
            )
            for tp, ranges in sorted(batch.acquired.items())
        ]

    def _batch(self, offset: dict[str, Any]) -> ShareBatch:
        return checked_delivery(from_json(offset, self.options.group), self.options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of the acquired ranges."""
        if not isinstance(partition, SharePartition):
            return iter(())  # Spark's placeholder for an empty plan
        return self._rows(partition)

    def _rows(self, partition: SharePartition) -> Iterator[pa.RecordBatch]:
        source = self.options.source
        for split in partition.planned.splits:
            task = ReadTask(
                split=split,
                bootstrap_servers=source.bootstrap_servers,
                # The group acquires no record that its own isolation level hides.
                isolation_level=READ_UNCOMMITTED,
                fail_on_data_loss=source.fail_on_data_loss,
                schema=self.schema,
                timeouts=source.timeouts,
                client_id=source.client_id or CLIENT_ID,
                security=partition.security,
            )
            with without_traceback():
                yield from read(task)

    @without_traceback()
    def commit(self, end: dict[str, Any]) -> None:
        """Spark has completed this batch: accept its records."""
        self._queue.completed(self._batch(end))

    def stop(self) -> None:
        """Leave the group, and close the connections. What only locks keep is released."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None
        if self._planner is not None:
            self._planner.close()
            self._planner = None
