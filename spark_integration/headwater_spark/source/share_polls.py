"""How the driver's member of a share group acquires records: one poll per micro-batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from headwater.client.security_options import security_keywords
from headwater.client.share_consumer import ShareConsumer
from headwater.client.share_values import ShareRecord
from headwater.client.values import TopicPartition
from headwater.clock import Clock
from headwater.wire.primitives import INT32_MAX
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

Ends = Mapping[tuple[str, int], int]
"""Of a run that ends there: the offsets behind the last records."""


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


class SharePolls:
    """The polls of one run of a query."""

    def __init__(self, consumer: ShareConsumer, clock: Clock) -> None:
        self._consumer = consumer
        self._clock = clock
        self._is_first = True
        self._is_ended = False
        """A run with an end has come to it."""

    def next(
        self, ends: Ends | None, is_wanted: Callable[[ShareRecord], bool] = lambda _row: True
    ) -> list[ShareRecord]:
        """New records up to the limit, each locked: what one poll brings. A second one would
        acquire records for which no batch may have room before their locks time out."""
        if self._is_ended:
            return []
        kept: list[ShareRecord] = []
        while not kept:
            rows = self._polled(POLL_MS if ends is None else END_MS)
            kept = [row for row in rows if is_wanted(row)]
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


def _rows(polled: Mapping[TopicPartition, list[ShareRecord]]) -> list[ShareRecord]:
    return [row for rows in polled.values() for row in rows]
