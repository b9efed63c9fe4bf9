"""Expires the producer's waiting batches, and notes the outages that keep them waiting.

Runs on the producer's loop, every `TICK_S` seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from headwater.client.cluster import Cluster
from headwater.client.core.metadata import NO_LEADER
from headwater.client.core.partition_queue import PartitionQueue, ProducerBatch
from headwater.client.errors import KafkaTimeoutError, UnknownTopicOrPartitionError
from headwater.client.outages import OutageLog
from headwater.client.record_accumulator import RecordAccumulator
from headwater.client.values import Outage
from headwater.errors import ErrorCode, KafkaError

TICK_S = 0.5
MISSING_PARTITION_S = 2.0
"""A partition that the metadata lacks so long does not exist: one broker may lag behind."""

Finish = Callable[[list[ProducerBatch]], None]
NoteCoordinator = Callable[[OutageLog], set[str]]


def no_coordinator(_: OutageLog) -> set[str]:
    """The outages of a coordinator that there is not: the producer has no transactions."""
    return set()


class DeliveryWatch:
    """Expires batches after `delivery_timeout_ms` and notes outages of partitions."""

    def __init__(
        self,
        cluster: Cluster,
        accumulator: RecordAccumulator,
        outages: OutageLog,
        *,
        delivery_timeout_s: float,
        linger_s: float,
        finish: Finish,
        note_coordinator: NoteCoordinator,
    ) -> None:
        """`finish` takes batches that failed: their `error` is set. `note_coordinator` notes that a
        transaction's coordinator does not answer, and names the subjects of its outages."""
        self._cluster = cluster
        self._accumulator = accumulator
        self._outages = outages
        self._delivery_timeout_s = delivery_timeout_s
        self._linger_s = linger_s
        self._finish = finish
        self._note_coordinator = note_coordinator
        self._interval_s = min(TICK_S, delivery_timeout_s / 4, outages.report_after_s / 4)
        self._waiting_after_s = outages.report_after_s / 2
        """A partition whose oldest batch waits so long has an outage."""
        self.id_error: Exception | None = None
        """Why there is no producer id yet."""

    async def run(self) -> None:
        """Check again and again, until cancelled."""
        while True:
            await asyncio.sleep(self._interval_s)
            self.check()

    def check(self) -> None:
        """One check: note outages, report those that are due, expire batches."""
        now = self._cluster.clock.monotonic()
        expired: list[ProducerBatch] = []
        stuck: set[str] = set()
        linger_s = 0.0 if self._accumulator.is_urgent else self._linger_s
        with self._accumulator.lock:
            for queue in self._accumulator.queues.values():
                if queue.is_idle:
                    continue
                since = queue.waiting_since(now, linger_s)
                if self._is_missing(queue, now):
                    expired += self._fail_missing(queue)
                elif since is not None and now - since >= self._waiting_after_s:
                    stuck.add(self._note(queue, since))
                expired += self._expire(queue, now)
        self._outages.keep(stuck | self._note_coordinator(self._outages))
        self._outages.report("flush" if self._accumulator.flushing else "")
        self._finish(expired)

    def _expire(self, queue: PartitionQueue, now: float) -> list[ProducerBatch]:
        old = queue.expire(now - self._delivery_timeout_s)
        for batch in old:
            batch.error = self.timeout_error(batch)
        return old

    def timeout_error(self, batch: ProducerBatch, error: Exception | None = None) -> Exception:
        """The error of a batch that `delivery_timeout_ms` was not enough for."""
        queue = batch.queue
        text = (
            f"{batch.count} records for {queue.topic}-{queue.partition} not delivered within "
            f"{self._delivery_timeout_s:g} s"
        )
        if error is None:
            _, cause, detail, _ = self._cause(queue)
            return KafkaTimeoutError(f"{text}: {cause}" + (f": {detail}" if detail else ""))
        return KafkaTimeoutError(f"{text}: {error}")

    def _is_missing(self, queue: PartitionQueue, now: float) -> bool:
        """True once the topic has existed for a while without this partition."""
        topic = self._cluster.cache.topics.get(queue.topic)
        if topic is None or queue.partition < len(topic.partitions):
            queue.missing_since = None
            return False
        if queue.missing_since is None:
            queue.missing_since = now
        return now - queue.missing_since >= MISSING_PARTITION_S

    def _fail_missing(self, queue: PartitionQueue) -> list[ProducerBatch]:
        count = len(self._cluster.cache.topics[queue.topic].partitions)
        waiting = queue.expire(float("inf"))
        for batch in waiting:
            batch.error = UnknownTopicOrPartitionError(
                f"{queue.topic}-{queue.partition}: the topic was deleted and created again with "
                f"{count} partitions"
            )
        return waiting

    def _note(self, queue: PartitionQueue, waiting_since: float) -> str:
        subject = f"{queue.topic}-{queue.partition}"
        code, cause, detail, since = self._cause(queue)
        began = waiting_since if since is None else since
        self._outages.note(subject, code, cause, detail, since=began)
        return subject

    def waits(self, batches: list[ProducerBatch]) -> list[Outage]:
        """What these batches wait for, by partition, however short that is; oldest first."""
        now = self._cluster.clock.monotonic()
        found: dict[str, Outage] = {}
        for batch in batches:
            queue = batch.queue
            name = f"{queue.topic}-{queue.partition}"
            if name not in found:
                code, cause, detail, since = self._cause(queue)
                began = batch.created if since is None else since
                found[name] = Outage(name, code.name, cause, detail, max(0.0, now - began))
        return sorted(found.values(), key=lambda outage: -outage.seconds)

    def _cause(self, queue: PartitionQueue) -> tuple[ErrorCode, str, str, float | None]:
        """(code, cause, detail, since when if that is known): why the queue's batches wait."""
        cache = self._cluster.cache
        last = queue.last_error
        detail = "" if last is None else str(last)
        if self._needs_id(queue):
            return ErrorCode.NETWORK_EXCEPTION, "no producer id yet", str(self.id_error or ""), None
        if queue.topic not in cache.topics:
            code = cache.errors.get(queue.topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return code, f"no metadata of the topic ({code.name})", detail, None
        leader = cache.leader(queue.topic, queue.partition)
        if leader == NO_LEADER:
            return ErrorCode.LEADER_NOT_AVAILABLE, "the partition has no leader", "", None
        unreachable = self._cluster.unreachable.get(leader)
        if unreachable is not None:
            cause = f"leader {leader} is not reachable"
            return ErrorCode.NETWORK_EXCEPTION, cause, unreachable.reason, unreachable.since
        if isinstance(last, KafkaError):
            return last.code, f"leader {leader} answers {last.code.name}", last.detail, None
        connection = self._cluster.known_connection(leader)
        if connection is not None and (throttled_s := connection.throttled_s) > 0:
            cause = f"leader {leader} throttles this client"
            return ErrorCode.THROTTLING_QUOTA_EXCEEDED, cause, f"{throttled_s:.1f} s left", None
        if queue.in_flight:
            return ErrorCode.REQUEST_TIMED_OUT, f"no response from leader {leader}", detail, None
        if connection is not None:
            return ErrorCode.REQUEST_TIMED_OUT, f"not sent yet to leader {leader}", detail, None
        return ErrorCode.NETWORK_EXCEPTION, f"no connection to leader {leader}", detail, None

    def _needs_id(self, queue: PartitionQueue) -> bool:
        return self.id_error is not None and queue.is_idempotent and queue.producer_id < 0
