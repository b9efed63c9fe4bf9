"""Prometheus metrics: read from the hot path's plain counters when they are scraped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import cast

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from headwater_broker.api.context import Services
from headwater_broker.api.registry import rows
from headwater_broker.api.request_meters import LATENCY_BOUNDS_MS, ApiMeter
from headwater_broker.controller.controller import ControllerService
from headwater_broker.replica.isr import below_min_isr
from headwater_broker.runtime.loop_lag import LagProbe
from headwater_broker.telemetry.consumer_lag import topic_lags
from headwater_broker.telemetry.process_stats import rss_bytes

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class BrokerCollector(Collector):
    """Everything this broker counts, as metric families."""

    def __init__(
        self, services: Callable[[], Services], lag: LagProbe, controller: ControllerService
    ) -> None:
        self._services = services
        self._lag = lag
        self._controller = controller

    def collect(self) -> Iterator[Metric]:
        """One pass over the counters."""
        services = self._services()
        yield from self._topics(services)
        yield from self._requests(services)
        yield from self._partitions(services)
        yield from self._cluster()
        yield from self._groups(services)
        yield from self._node(services)
        yield from self._cleaner(services)
        yield from self._quotas(services)
        yield GaugeMetricFamily(
            "process_resident_memory_bytes", "Resident memory of the broker.", value=rss_bytes()
        )

    def describe(self) -> list[Metric]:
        """Nothing ahead of time: registering must not collect."""
        return []

    def _topics(self, services: Services) -> Iterator[Metric]:
        columns = (
            ("bytes_in", "Bytes of record batches appended by producers."),
            ("bytes_out", "Bytes of record batches sent to consumers and followers."),
            ("records_in", "Records appended by producers."),
        )
        for column, text in columns:
            family = CounterMetricFamily(f"headwater_topic_{column}", text, labels=["topic"])
            for topic, meter in sorted(services.meters.topics.items()):
                family.add_metric([topic], getattr(meter, column))
            yield family

    def _requests(self, services: Services) -> Iterator[Metric]:
        count = CounterMetricFamily("headwater_requests", "Requests by API.", labels=["api"])
        latency = HistogramMetricFamily(
            "headwater_request_handling_seconds",
            "Time to handle a request on the loop (sampled), without time parked.",
            labels=["api"],
        )
        names = {key: row.request.__name__.removesuffix("Request") for key, row in rows().items()}
        for key, meter in sorted(services.meters.apis.items()):
            name = names.get(key, str(key))
            count.add_metric([name], meter.requests)
            latency.add_metric([name], _buckets(meter), meter.sum_ms / 1000)
        yield count
        yield latency

    def _partitions(self, services: Services) -> Iterator[Metric]:
        leaders = under = offline = below_min = isr = 0
        for partition in services.replicas.partitions.values():
            offline += bool(partition.offline_reason)
            if not partition.is_leader:
                continue
            leaders += 1
            isr += len(partition.isr)
            settled = len(partition.replicas) - len(partition.adding_replicas)
            under += len(partition.isr) < settled
            below_min += below_min_isr(
                len(partition.isr), partition.min_insync_replicas, len(partition.replicas)
            )
        rows_ = (
            ("partitions", "Replicas hosted here.", len(services.replicas.partitions)),
            ("leaders", "Partitions led here.", leaders),
            ("isr_members", "In-sync replicas of the partitions led here.", isr),
            (
                "under_replicated_partitions",
                "Led here with an ISR below the replicas; those that a move adds do not count.",
                under,
            ),
            ("under_min_isr_partitions", "Led here below min.insync.replicas.", below_min),
            ("offline_replicas", "Replicas hosted here that are offline.", offline),
        )
        for name, text, value in rows_:
            yield GaugeMetricFamily(f"headwater_{name}", text, value=value)
        replicas = services.replicas
        for name, text, count in (
            ("isr_shrinks", "ISRs that a leader here made smaller.", replicas.isr_shrinks_total),
            ("isr_expands", "ISRs that a leader here made larger.", replicas.isr_expands_total),
        ):
            yield CounterMetricFamily(f"headwater_{name}", text, value=count)

    def _cluster(self) -> Iterator[Metric]:
        """What only the controller knows: no broker hosts a partition whose brokers are all down.
        The sum over all brokers counts."""
        controller = self._controller
        for name, text, value in (
            ("active_controller", "1 where the controller is, 0 elsewhere.", controller.is_active),
            (
                "offline_partitions",
                "Partitions of the cluster that nobody leads; told by the controller, 0 elsewhere.",
                controller.offline_partitions,
            ),
        ):
            yield GaugeMetricFamily(f"headwater_{name}", text, value=value)
        yield CounterMetricFamily(
            "headwater_unclean_elections",
            "Leaders not in sync that this broker, as controller, had to choose.",
            value=controller.unclean_elections_total,
        )

    def _groups(self, services: Services) -> Iterator[Metric]:
        members = GaugeMetricFamily(
            "headwater_group_members", "Members of a group coordinated here.", labels=["group"]
        )
        lag = GaugeMetricFamily(
            "headwater_group_lag",
            "Records a group has not committed yet; told by its coordinator, for topics of which "
            "it hosts all partitions.",
            labels=["group", "topic"],
        )
        for group in services.groups.coordinated():
            members.add_metric([group.group_id], len(group.members))
            for topic, behind in topic_lags(group, services.replicas):
                lag.add_metric([group.group_id, topic], behind)
        yield members
        yield lag

    def _loop_gauges(self) -> tuple[tuple[str, str, float], ...]:
        lag = self._lag
        return (
            (
                "loop_delay_seconds",
                "Worst delay of a timer within a minute, the wait for a core included.",
                lag.recent_worst_s,
            ),
            (
                "loop_delay_worst_seconds",
                "Worst delay of a timer since start, the wait for a core included.",
                lag.worst_s,
            ),
            (
                "loop_turn_seconds",
                "Longest turn of the event loop within a minute, without the wait for a core.",
                lag.recent_turn_s,
            ),
            (
                "loop_turn_longest_seconds",
                "Longest turn of the event loop since start, without the wait for a core.",
                lag.longest_turn_s,
            ),
        )

    def _cleaner(self, services: Services) -> Iterator[Metric]:
        meter = services.cleaner
        gauges = (
            ("max_dirty_percent", "Dirty share of the dirtiest log.", 100 * meter.max_dirty_ratio),
            ("last_run_timestamp_seconds", "When a log was compacted.", meter.last_run_ms / 1000),
            ("last_run_seconds", "How long that took.", meter.last_took_s),
            ("longest_run_seconds", "How long a compaction took at most.", meter.longest_s),
            (
                "uncleanable_partitions",
                "Logs that could not be compacted and are left alone.",
                meter.uncleanable_partitions,
            ),
            ("uncleanable_bytes", "Bytes of those logs.", meter.uncleanable_bytes),
        )
        for name, text, value in gauges:
            yield GaugeMetricFamily(f"headwater_log_cleaner_{name}", text, value=value)
        counters = (
            ("runs", "Logs compacted.", meter.runs),
            ("failures", "Compactions that came to nothing.", meter.failures),
            ("bytes_read", "Bytes read by compaction.", meter.bytes_read),
            ("bytes_written", "Bytes written by compaction.", meter.bytes_written),
            ("records_dropped", "Records that compaction left out.", meter.records_dropped),
        )
        for name, text, value in counters:
            yield CounterMetricFamily(f"headwater_log_cleaner_{name}", text, value=value)

    def _quotas(self, services: Services) -> Iterator[Metric]:
        quotas = services.quotas
        told = "Time that clients were told to wait (throttle_time_ms)."
        rows_ = (
            ("throttled", "Times that a client over a quota was held up.", quotas.throttled, 1),
            ("throttled_seconds", told, quotas.throttled_ms, 1000),
        )
        for name, text, counts, divisor in rows_:
            family = CounterMetricFamily(f"headwater_{name}", text, labels=["quota"])
            for quota, count in sorted(counts.items()):
                family.add_metric([quota], count / divisor)
            yield family

    def _node(self, services: Services) -> Iterator[Metric]:
        meters, parked = services.meters, services.purgatories
        gauges = (
            ("connections", "Open connections.", meters.connections),
            ("parked_produce", "Produce requests that wait.", parked.produce.parked),
            ("parked_fetch", "Fetch requests that wait.", parked.fetch.parked),
            ("fetch_sessions", "Fetch sessions.", len(services.sessions)),
            *self._loop_gauges(),
            (
                "controller_id",
                "The controller as this broker sees it.",
                services.view.controller_id,
            ),
        )
        for name, text, value in gauges:
            yield GaugeMetricFamily(f"headwater_{name}", text, value=value)
        counters = (
            ("connections_accepted", "Connections accepted.", meters.connections_total),
            (
                "connections_closed_malformed",
                "Connections closed for a malformed or unknown request.",
                meters.connections_closed_malformed,
            ),
            ("remote_read_errors", "Reads of tiered offsets that failed.", meters.remote_errors),
            ("produce_expired", "Produce requests that timed out.", parked.produce.expired_total),
            ("loop_late", "Turns of the event loop above 20 ms.", self._lag.late_total),
        )
        for name, text, value in counters:
            yield CounterMetricFamily(f"headwater_{name}", text, value=value)


def _buckets(meter: ApiMeter) -> list[tuple[str, float]]:
    total = 0
    found = []
    for bound, count in zip((*LATENCY_BOUNDS_MS, float("inf")), meter.buckets, strict=True):
        total += count
        found.append(("+Inf" if bound == float("inf") else str(bound / 1000), float(total)))
    return found


class _Collected:
    """Families that were collected already, as `generate_latest` wants them."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        """All of them."""
        return self._families


class MetricsText:
    """The registry of one broker and its text form."""

    def __init__(
        self, services: Callable[[], Services], lag: LagProbe, controller: ControllerService
    ) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(BrokerCollector(services, lag, controller))

    async def collect(self) -> list[Metric]:
        """Read the counters; the loop has its turn after each family."""
        families = []
        for family in self.registry.collect():
            families.append(family)
            await asyncio.sleep(0)
        return families

    @staticmethod
    def format(families: list[Metric]) -> bytes:
        """Prometheus text, as /metrics serves it (CONTENT_TYPE). Any thread."""
        return generate_latest(cast(CollectorRegistry, _Collected(families)))
