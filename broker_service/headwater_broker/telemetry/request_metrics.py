"""Metric families of requests, topics' traffic, client quotas and connections."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from headwater.errors import ErrorCode
from headwater_broker.api.registry import rows
from headwater_broker.api.request_meters import FETCH, Meters
from headwater_broker.api.request_timing import STAGES
from headwater_broker.quota.client_quotas import ClientQuotas
from headwater_broker.replica.delayed_operations import Purgatories
from headwater_broker.runtime.histogram import Histogram


def topic_metrics(meters: Meters) -> Iterator[Metric]:
    """Traffic by topic."""
    columns = (
        ("bytes_in", "bytes_in", "Bytes of record batches appended by producers."),
        ("bytes_out", "bytes_out", "Bytes of record batches sent to consumers and followers."),
        ("records_in", "records_in", "Records appended by producers."),
        ("bytes_rejected", "bytes_rejected", "Bytes of producers' batches that were refused."),
        ("failed_produce_requests", "failed_produces", "Producers' batches that were refused."),
        (
            "failed_fetch_requests",
            "failed_fetches",
            "Partitions that a Fetch answered with an error.",
        ),
    )
    for name, column, text in columns:
        family = CounterMetricFamily(f"headwater_topic_{name}", text, labels=["topic"])
        for topic, meter in sorted(meters.topics.items()):
            family.add_metric([topic], getattr(meter, column))
        yield family


def request_metrics(meters: Meters) -> Iterator[Metric]:
    """Requests by API: their number, total time, time per stage, errors."""
    count = CounterMetricFamily("headwater_requests", "Requests by API.", labels=["api"])
    errors = CounterMetricFamily(
        "headwater_request_errors",
        "Errors that replies carried: of Produce and Fetch one per partition, of other APIs one "
        "per reply that is an error as a whole.",
        labels=["api", "error"],
    )
    total = HistogramMetricFamily(
        "headwater_request_seconds",
        "Time of a request from its arrival until its reply is with the kernel. Its count is that "
        "of the requests; on a busy broker some of them are timed for all.",
        labels=["api"],
    )
    stages = HistogramMetricFamily(
        "headwater_request_stage_seconds",
        "The same by stage. queue: from its arrival to its handler; local: in the handler; remote: "
        "parked for other replicas, for data or for the controller; send: from the reply to the "
        "kernel; throttle: how long the client is muted by a quota, not part of the whole.",
        labels=["api", "stage"],
    )
    names = api_names()
    for key, is_follower, meter in meters.all_apis():
        name = names.get((key, is_follower), str(key))
        meter.settle()
        count.add_metric([name], meter.requests)
        for code, number in sorted(meter.errors.items()):
            errors.add_metric([name, ErrorCode(code).name], number)
        total.add_metric([name], buckets(meter.total), meter.total.sum_s)
        for stage, histogram in zip(STAGES, meter.stages, strict=True):
            stages.add_metric([name, stage], buckets(histogram), histogram.sum_s)
    yield from (count, errors, total, stages)


def api_names() -> dict[tuple[int, bool], str]:
    """(API key, is it a follower) -> name. As in Kafka, Fetch has two names."""
    names = {
        (key, False): row.request.__name__.removesuffix("Request") for key, row in rows().items()
    }
    names[FETCH, False], names[FETCH, True] = "FetchConsumer", "FetchFollower"
    return names


def buckets(histogram: Histogram) -> list[tuple[str, float]]:
    """(upper bound in seconds, count up to it), in the form of the Prometheus client."""
    return [
        ("+Inf" if bound == float("inf") else str(bound), float(count))
        for bound, count in histogram.cumulative()
    ]


def connection_metrics(meters: Meters) -> Iterator[Metric]:
    """Connections of clients and of other brokers."""
    yield GaugeMetricFamily("headwater_connections", "Open connections.", value=meters.connections)
    yield CounterMetricFamily(
        "headwater_connections_accepted", "Connections accepted.", value=meters.connections_total
    )
    yield CounterMetricFamily(
        "headwater_connections_closed_malformed",
        "Connections closed for a malformed or unknown request.",
        value=meters.connections_closed_malformed,
    )


def purgatory_metrics(purgatories: Purgatories) -> Iterator[Metric]:
    """Requests parked in the purgatories, and those that expired there."""
    produce, fetch = purgatories.produce, purgatories.fetch
    yield GaugeMetricFamily(
        "headwater_parked_produce", "Produce requests that wait.", value=produce.parked
    )
    yield GaugeMetricFamily(
        "headwater_parked_fetch", "Fetch requests that wait.", value=fetch.parked
    )
    yield CounterMetricFamily(
        "headwater_produce_expired", "Produce requests that timed out.", value=produce.expired_total
    )
    yield CounterMetricFamily(
        "headwater_fetch_expired",
        "Fetch requests answered because fetch.max.wait.ms was over.",
        value=fetch.expired_total,
    )


def quota_metrics(quotas: ClientQuotas) -> Iterator[Metric]:
    """Throttled clients, by quota."""
    families = (
        ("throttled", "Requests of clients over a quota.", quotas.throttled, 1),
        (
            "throttled_seconds",
            "Time for which clients were throttled (throttle_time_ms).",
            quotas.throttled_ms,
            1000,
        ),
    )
    for name, text, counts, divisor in families:
        family = CounterMetricFamily(f"headwater_{name}", text, labels=["quota"])
        for quota, number in sorted(counts.items()):
            family.add_metric([quota], number / divisor)
        yield family
