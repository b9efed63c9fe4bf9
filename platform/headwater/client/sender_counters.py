"""The counters of what sends a producer's batches."""

from __future__ import annotations

from headwater.client.core.partition_queue import ProducerBatch


class SenderCounters:
    """What `Producer.statistics` counts. One thread at a time writes them."""

    __slots__ = (
        "batches_retried",
        "batches_sent",
        "batches_split",
        "bytes_sent",
        "latency_max_s",
        "latency_sum_s",
        "records_failed",
        "records_sent",
        "requests_sent",
        "responses",
    )

    def __init__(self) -> None:
        self.records_sent = self.bytes_sent = self.batches_sent = self.records_failed = 0
        self.batches_retried = self.batches_split = self.requests_sent = self.responses = 0
        self.latency_sum_s = self.latency_max_s = 0.0

    def acknowledged(self, batch: ProducerBatch) -> None:
        """A batch is acknowledged; its bytes are still there."""
        self.batches_sent += 1
        self.records_sent += batch.count
        self.bytes_sent += batch.bytes_held if batch.data is None else len(batch.data)

    def responded(self, seconds: float) -> None:
        """A request had its response after so long."""
        self.responses += 1
        self.latency_sum_s += seconds
        if seconds > self.latency_max_s:
            self.latency_max_s = seconds

    def plus(self, other: SenderCounters) -> SenderCounters:
        """Both together."""
        both = SenderCounters()
        for name in self.__slots__:
            setattr(both, name, getattr(self, name) + getattr(other, name))
        both.latency_max_s = max(self.latency_max_s, other.latency_max_s)
        return both
