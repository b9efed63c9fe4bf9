"""The engine of a producer: cluster, batches, sender, routes and transactions on one loop.

`Producer` runs it on a thread of its own, `headwater.aio.AsyncProducer` on the caller's loop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from headwater.client.cluster import Cluster
from headwater.client.core.partition_queue import ProducerBatch
from headwater.client.engine_host import EngineHost
from headwater.client.errors import ClosedError, KafkaTimeoutError
from headwater.client.futures import BatchCompletion
from headwater.client.outages import OutageLog, summary
from headwater.client.producer_options import ProducerOptions
from headwater.client.record_accumulator import AccumulatorParts, RecordAccumulator
from headwater.client.sender import Sender
from headwater.client.sender_counters import SenderCounters
from headwater.client.topic_routes import TopicRoutes
from headwater.client.transaction_manager import TransactionManager
from headwater.client.values import ProducerStatistics, Unacked
from headwater.clock import FineClock

CLOSED_TEXT = "the producer was closed before the record was delivered"
A = TypeVar("A", bound=RecordAccumulator)

log = logging.getLogger("headwater.client.producer")


class ShortWay(Protocol):
    """What waiting threads send by themselves (`headwater.client.lone_sends`)."""

    counters: SenderCounters
    sends_to: int | None
    """The node that a request without a response was sent to."""

    def close(self) -> None:
        """End it, on the loop."""
        ...


class ProducerEngine(Generic[A]):
    """The parts of one producer. `start` and `stop` run on the host's loop."""

    def __init__(
        self,
        options: ProducerOptions,
        host: EngineHost,
        clock: FineClock,
        completion: BatchCompletion,
        accumulator: Callable[[AccumulatorParts], A],
    ) -> None:
        self.options = options
        self.host = host
        self.clock = clock
        self.completion = completion
        self.cluster = Cluster(
            options.bootstrap_servers, options.for_cluster(), clock, on_update=self._on_metadata
        )
        self.outages = OutageLog(
            clock, log, options.on_error, report_after_s=options.outage_report_ms / 1000
        )
        self.accumulator = accumulator(
            AccumulatorParts(
                options, clock, completion, host, self.outages, self.wake_sender, self._drains_by
            )
        )
        self.transactions: TransactionManager | None = None
        if options.transactional_id is not None:
            self.transactions = TransactionManager(self.cluster, options, self.accumulator)
        self.sender = Sender(
            self.cluster, options, self.accumulator, completion, self.outages, self.transactions
        )
        self.routes = TopicRoutes(self.cluster, options, self.accumulator)
        self.lone: ShortWay | None = None
        """The blocking face has it."""

    def _on_metadata(self) -> None:
        self.routes.on_metadata()

    async def start(self) -> None:
        """Find the brokers and begin to send. Raises NoBrokersAvailableError."""
        await self.cluster.bootstrap(self.options.bootstrap_timeout_ms)
        self.sender.start()

    async def stop(self) -> None:
        """End every task and connection."""
        if self.lone is not None:
            self.lone.close()
        self.sender.stop(ClosedError(CLOSED_TEXT))
        await self.cluster.close()

    def _drains_by(self, due: float) -> bool:
        return self.sender.timer.fires_by(due)

    def wake_sender(self) -> None:
        """There is something to send. The caller's code calls it."""
        sender = self.sender
        if not sender.wake_is_pending:
            sender.wake_is_pending = True
            self.host.post(sender.drain)

    def fail_everything(self) -> None:
        """Fail what is left: the producer was closed. On the loop."""
        self.sender.fail_everything(ClosedError(CLOSED_TEXT))

    def late(self, batches: list[ProducerBatch], limit_s: float) -> KafkaTimeoutError:
        """The error of a flush whose time is up: what it waits for, why, and for how long."""
        left = [b for b in batches if not b.is_done]
        count = sum(b.count for b in left)
        return KafkaTimeoutError(
            f"flush waits for {summary(self.sender.waits(left)) or 'records to be queued'}; "
            f"{count} records are not acknowledged after {limit_s:g} s"
        )

    def unacked(self) -> list[Unacked]:
        """See `Producer.unacked`."""
        now = self.clock.monotonic()
        batches = self.accumulator.unfinished()
        causes = {o.subject: o for o in self.sender.waits(batches)}
        rows = []
        for batch in batches:
            topic, partition = batch.queue.topic, batch.queue.partition
            outage = causes[f"{topic}-{partition}"]
            rows.append(
                Unacked(
                    topic,
                    partition,
                    batch.count,
                    batch.bytes_held,
                    "in doubt" if batch.attempts else "not sent",
                    max(0.0, now - batch.created),
                    f"{outage.cause}: {outage.detail}" if outage.detail else outage.cause,
                )
            )
        return rows

    def statistics(self) -> ProducerStatistics:
        """What the producer has done since it was created, and what it waits for now."""
        counters = self.sender.counters
        if self.lone is not None:
            counters = counters.plus(self.lone.counters)
        in_flight = {n: c for n, c in self.sender.in_flight.items() if c}
        if self.lone is not None and (node_id := self.lone.sends_to) is not None:
            in_flight[node_id] = in_flight.get(node_id, 0) + 1
        latency_s = counters.latency_sum_s / counters.responses if counters.responses else 0.0
        return ProducerStatistics(
            records_sent=counters.records_sent,
            bytes_sent=counters.bytes_sent,
            batches_sent=counters.batches_sent,
            records_failed=counters.records_failed,
            batches_retried=counters.batches_retried,
            batches_split=counters.batches_split,
            requests_sent=counters.requests_sent,
            request_latency_ms_avg=latency_s * 1000,
            request_latency_ms_max=counters.latency_max_s * 1000,
            records_waiting=sum(b.count for b in self.accumulator.unfinished()),
            buffer_bytes=self.accumulator.reserved_bytes,
            buffer_bytes_max=self.options.buffer_memory,
            blocked_threads=self.accumulator.blocked_senders,
            requests_in_flight=in_flight,
            outages=self.outages.outages(),
        )

    def metrics(self) -> dict[str, float]:
        """The same as numbers, by the names of Kafka's producer metrics (producer-metrics)."""
        now = self.statistics()
        return {
            "record-send-total": now.records_sent,
            "record-error-total": now.records_failed,
            "record-retry-total": now.batches_retried,
            "batch-split-total": now.batches_split,
            "outgoing-byte-total": now.bytes_sent,
            "request-total": now.requests_sent,
            "request-latency-avg": now.request_latency_ms_avg,
            "request-latency-max": now.request_latency_ms_max,
            "requests-in-flight": sum(now.requests_in_flight.values()),
            "buffer-total-bytes": now.buffer_bytes_max,
            "buffer-available-bytes": now.buffer_bytes_max - now.buffer_bytes,
            "waiting-threads": now.blocked_threads,
        }
