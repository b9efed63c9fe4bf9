"""Counters of the hot path: plain numbers, read by the metrics registry when it is scraped."""

from __future__ import annotations

from typing import ClassVar

LATENCY_BOUNDS_MS = (
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    25.0,
    50.0,
    100.0,
    250.0,
    500.0,
    1000.0,
    5000.0,
)
"""Upper bounds of the latency buckets."""
LATENCY_SAMPLE = 16
"""One request in this many is timed on the hot path."""


class TopicMeter:
    """One topic's traffic on this broker."""

    __slots__ = ("bytes_in", "bytes_out", "records_in")

    def __init__(self) -> None:
        self.bytes_in = 0
        self.bytes_out = 0
        self.records_in = 0

    def add(self, other: TopicMeter) -> None:
        """Take over what another has counted."""
        self.bytes_in += other.bytes_in
        self.bytes_out += other.bytes_out
        self.records_in += other.records_in


class ApiMeter:
    """One API key's requests: count, errors, and a histogram of sampled latencies."""

    __slots__ = ("buckets", "errors", "requests", "sampled", "sum_ms")
    bounds: ClassVar[tuple[float, ...]] = LATENCY_BOUNDS_MS

    def __init__(self) -> None:
        self.requests = 0
        self.errors = 0
        self.sampled = 0
        self.sum_ms = 0.0
        self.buckets = [0] * (len(LATENCY_BOUNDS_MS) + 1)

    def observe(self, elapsed_ms: float) -> None:
        """Count one sampled latency."""
        self.sampled += 1
        self.sum_ms += elapsed_ms
        for index, bound in enumerate(LATENCY_BOUNDS_MS):
            if elapsed_ms <= bound:
                self.buckets[index] += 1
                return
        self.buckets[-1] += 1


class Meters:
    """All counters of this broker's data plane."""

    __slots__ = (
        "apis",
        "connections",
        "connections_closed_malformed",
        "connections_total",
        "deleted",
        "fetch",
        "produce",
        "remote_errors",
        "topics",
    )

    def __init__(self) -> None:
        self.topics: dict[str, TopicMeter] = {}
        self.deleted = TopicMeter()
        """What topics that are deleted had counted: the broker's totals never step back."""
        self.apis: dict[int, ApiMeter] = {}
        self.connections = 0
        self.connections_total = 0
        self.connections_closed_malformed = 0
        self.remote_errors = 0
        self.produce = self.api(0)
        self.fetch = self.api(1)

    def topic(self, name: str) -> TopicMeter:
        """The meter of `name`, made at first use."""
        meter = self.topics.get(name)
        if meter is None:
            meter = self.topics[name] = TopicMeter()
        return meter

    def forget(self, name: str) -> None:
        """A topic is deleted: it is listed no more."""
        meter = self.topics.pop(name, None)
        if meter is not None:
            self.deleted.add(meter)

    def total(self) -> TopicMeter:
        """Of all topics since the start."""
        total = TopicMeter()
        for meter in (self.deleted, *self.topics.values()):
            total.add(meter)
        return total

    def api(self, key: int) -> ApiMeter:
        """The meter of an API key, made at first use."""
        meter = self.apis.get(key)
        if meter is None:
            meter = self.apis[key] = ApiMeter()
        return meter
