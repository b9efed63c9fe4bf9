"""The driver's member of a share group: acquires a micro-batch, keeps its locks, accepts it.

The driver acquires, the tasks read: the acquired ranges go into Spark's offsets, and the tasks
fetch them as any consumer does. While a batch runs, a thread of this object's renews its locks.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

from headwater.client.security_options import security_keywords
from headwater.client.share_consumer import ShareConsumer
from headwater.client.share_values import AcknowledgeType, ShareRecord
from headwater.client.values import TopicPartition
from headwater.clock import Clock
from headwater.errors import HeadwaterError, KafkaError
from headwater.wire.primitives import INT32_MAX
from headwater_spark.source.share_offsets import ShareBatch, nothing_yet, ranges_of
from headwater_spark.source.share_options import ShareOptions

CLIENT_ID = "headwater-spark-share"
JOIN_S = 30.0
"""How long the first batch waits for the group to assign partitions."""
FIRST_MS = 5_000.0
"""How long the first poll waits: the leaders load the group's state first."""
POLL_MS = 500.0
JOIN_POLL_MS = 100.0
END_MS = 3_000.0
"""How long Trigger.AvailableNow waits for a record before it counts all as read."""
RENEWALS = 3
"""Per lock timeout."""
DEFAULT_LOCK_MS = 30_000

logger = logging.getLogger(__name__)


def share_consumer(options: ShareOptions) -> ShareConsumer:
    """A member of the group. Raises KafkaError, UsageError."""
    return ShareConsumer(
        *options.topics,
        bootstrap_servers=options.source.bootstrap_servers,
        group_id=options.group,
        client_id=options.source.client_id or CLIENT_ID,
        share_acknowledgement_mode="explicit",
        share_acquire_mode="record_limit",  # what a batch has no room for would stay locked
        max_poll_records=options.max_records,
        max_poll_interval_ms=INT32_MAX,  # a batch takes as long as it takes
        **security_keywords(options.source.security.found()),
    )


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
        self._clock = clock
        self._topic_ids = topic_ids
        self._consumer = share_consumer(options) if consumer is None else consumer
        self._lock = threading.Lock()
        """Guards the consumer, which one thread at a time may use."""
        self._held: ShareBatch | None = None
        """Acquired, and not accepted yet."""
        self._rows: set[tuple[TopicPartition, int]] = set()
        """Its records that are still locked."""
        self._is_first = True
        self._is_ended = False
        """A run with an end has come to it."""
        self._closed = threading.Event()
        self._renewer = threading.Thread(target=self._renew, name="share-renewals", daemon=True)
        self._renewer.start()

    def next(
        self, start: ShareBatch, ends: Mapping[tuple[str, int], int] | None
    ) -> ShareBatch | None:
        """The batch after `start`, which is complete; None when there is nothing to read.

        `ends`: of a run that ends there, the offsets behind the last records. Raises KafkaError.
        """
        self.completed(start)
        if self._held is not None:
            return self._held  # planned before, and not run yet
        with self._lock:
            rows = self._poll(start, ends)
            if not rows:
                self._consumer.commit_async()
                return None
            by_partition: dict[tuple[str, int], list[int]] = {}
            for row in rows:
                by_partition.setdefault((row.topic, row.partition), []).append(row.offset)
            known = self._topic_ids()
            self._rows = {(TopicPartition(r.topic, r.partition), r.offset) for r in rows}
            self._held = ShareBatch(
                self._options.group,
                start.number + 1,
                {tp: ranges_of(offsets) for tp, offsets in by_partition.items()},
                {topic: known[topic] for topic, _ in by_partition},
            )
            return self._held

    def _poll(
        self, done: ShareBatch, ends: Mapping[tuple[str, int], int] | None
    ) -> list[ShareRecord]:
        """New records up to the limit, each locked: what one poll brings. A second one would
        acquire records for which no batch may have room before their locks time out."""
        if self._is_ended:
            return []
        kept: list[ShareRecord] = []
        while not kept:
            rows = self._polled(POLL_MS if ends is None else END_MS)
            kept = [row for row in rows if not self._is_done(row, done)]
            if not rows:
                break
        if ends is not None and all(
            row.offset >= ends.get((row.topic, row.partition), 0) for row in kept
        ):
            # None is released: that would count as a delivery, and those are limited.
            self._is_ended = True
        return kept

    def _polled(self, wait_ms: float) -> list[ShareRecord]:
        """One poll; the first waits for an assignment, and for the leaders."""
        end = self._clock.monotonic() + JOIN_S
        rows: list[ShareRecord] = []
        while self._is_first and not rows:
            is_assigned = bool(self._consumer.statistics().assigned)
            if is_assigned or self._clock.monotonic() >= end:
                self._is_first, wait_ms = False, max(wait_ms, FIRST_MS)
                break
            rows = _rows(self._consumer.poll(JOIN_POLL_MS))
        return rows or _rows(self._consumer.poll(wait_ms))

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


def _rows(polled: Mapping[TopicPartition, list[ShareRecord]]) -> list[ShareRecord]:
    return [row for rows in polled.values() for row in rows]


def before_first(options: ShareOptions) -> ShareBatch:
    """The offset that a new query begins with."""
    return nothing_yet(options.group)
