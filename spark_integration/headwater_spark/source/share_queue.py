"""The driver's member of a share group, at least once: acquires, keeps the locks, accepts.

The driver acquires, the tasks read: the acquired ranges go into Spark's offsets, and the tasks
fetch them as any consumer does. While a batch runs, a thread of this object's renews its locks.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

from headwater.client.share_consumer import ShareConsumer
from headwater.client.share_values import AcknowledgeType, ShareRecord
from headwater.client.values import TopicPartition
from headwater.clock import Clock
from headwater.errors import HeadwaterError, KafkaError
from headwater_spark.source.share_offsets import ShareBatch, ranges_by_partition
from headwater_spark.source.share_options import ShareOptions
from headwater_spark.source.share_polls import Ends, SharePolls, share_consumer

RENEWALS = 3
"""Per lock timeout."""
DEFAULT_LOCK_MS = 30_000

logger = logging.getLogger(__name__)


class ShareQueue:
    """What a query holds of its share group. Spark calls it on one thread."""

    def __init__(
        self,
        options: ShareOptions,
        clock: Clock,
        topic_ids: Callable[[], Mapping[str, str]],
        consumer: ShareConsumer | None = None,
    ) -> None:
        """`topic_ids` asks for the ids of the topics."""
        self._options = options
        self._topic_ids = topic_ids
        self._consumer = share_consumer(options) if consumer is None else consumer
        self._lock = threading.Lock()
        """Guards the consumer, which one thread at a time may use."""
        self._held: ShareBatch | None = None
        """Acquired, and not accepted yet."""
        self._rows: set[tuple[TopicPartition, int]] = set()
        """Its records that are still locked."""
        self._polls = SharePolls(self._consumer, clock)
        self._closed = threading.Event()
        self._renewer = threading.Thread(target=self._renew, name="share-renewals", daemon=True)
        self._renewer.start()

    def next(self, start: ShareBatch, ends: Ends | None) -> ShareBatch | None:
        """The batch after `start`, which is complete; None when there is nothing to read.

        `ends`: of a run that ends there, the offsets behind the last records. Raises KafkaError.
        """
        self.completed(start)
        if self._held is not None:
            return self._held  # planned before, and not run yet
        with self._lock:
            rows = self._polls.next(ends, lambda row: not self._is_done(row, start))
            if not rows:
                self._consumer.commit_async()
                return None
            acquired = ranges_by_partition((r.topic, r.partition, r.offset) for r in rows)
            known = self._topic_ids()
            self._rows = {(TopicPartition(r.topic, r.partition), r.offset) for r in rows}
            self._held = ShareBatch(
                self._options.group,
                start.number + 1,
                acquired,
                {topic: known[topic] for topic, _ in acquired},
            )
            return self._held

    def _is_done(self, row: ShareRecord, done: ShareBatch) -> bool:
        """True for a record of the last batch, which the query completed and was stopped before it
        could accept; it is accepted now. A delivery count of 1 is of a group that was reset."""
        if row.delivery_count == 1 or not done.holds(row.topic, row.partition, row.offset):
            return False
        self._consumer.acknowledge(row, AcknowledgeType.ACCEPT)
        return True

    def completed(self, batch: ShareBatch) -> None:
        """Spark has this batch in its commit log: accept its records."""
        if self._held is None or batch.number < self._held.number:
            return
        with self._lock:
            for partition, offset in sorted(self._rows):
                self._consumer.acknowledge_offset(partition, offset, AcknowledgeType.ACCEPT)
            self._warn(self._consumer.commit(), "accepted")
            self._held, self._rows = None, set()

    def _renew(self) -> None:
        """Renew the locks of the batch that runs, until `close`."""
        while True:
            lock_ms = self._consumer.acquisition_lock_timeout_ms() or DEFAULT_LOCK_MS
            if self._closed.wait(lock_ms / 1000 / RENEWALS):
                return
            with self._lock:
                try:
                    self._renew_once()
                except HeadwaterError as e:
                    logger.warning("locks of share group %s: %s", self._options.group, e)

    def _renew_once(self) -> None:
        rows = sorted(self._rows)
        for partition, offset in rows:
            self._consumer.acknowledge_offset(partition, offset, AcknowledgeType.RENEW)
        if rows:
            outcome = self._consumer.commit()
            lost = {partition for partition, error in outcome.items() if error is not None}
            self._rows = {row for row in self._rows if row[0] not in lost}
            self._warn(outcome, "renewed")

    def _warn(self, outcome: Mapping[TopicPartition, KafkaError | None], what: str) -> None:
        for partition, error in outcome.items():
            if error is not None:
                logger.warning(
                    "records of %s-%d were not %s, and are delivered again: %s",
                    *(partition.topic, partition.partition, what, error),
                )

    def close(self) -> None:
        """Release what is not accepted, and leave the group."""
        self._closed.set()
        self._renewer.join()
        self._consumer.close()
