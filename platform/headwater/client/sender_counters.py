"""The counters of a producer's sender."""

from __future__ import annotations


class SenderCounters:
    """What `Producer.statistics` counts. Written on the loop only."""

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
