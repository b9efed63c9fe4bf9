"""Prometheus metrics: the hot path's plain counters, read when they are scraped."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import cast

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headwater_broker.api.context import Services
from headwater_broker.controller.controller import ControllerService
from headwater_broker.runtime.loop_lag import LagProbe
from headwater_broker.telemetry import (
    epoch_metrics,
    group_metrics,
    process_metrics,
    replica_metrics,
    request_metrics,
    share_metrics,
    transaction_metrics,
)
from headwater_broker.telemetry.consumer_lag import end_offsets, partitions_elsewhere
from headwater_broker.telemetry.leader_end_offsets import LeaderEndOffsets
from headwater_broker.telemetry.share_coordinator_metrics import share_coordinator_metrics
from headwater_broker.telemetry.tiering import tier_metrics, tier_reports

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class BrokerCollector(Collector):
    """Every metric family of this broker."""

    def __init__(
        self,
        services: Services,
        lag: LagProbe,
        controller: ControllerService,
        elsewhere: LeaderEndOffsets,
    ) -> None:
        self._services = services
        self._lag = lag
        self._controller = controller
        self._elsewhere = elsewhere

    async def prepare(self) -> None:
        """Ask other brokers for the end offsets that the lag of groups needs."""
        services = self._services
        groups = services.groups.coordinated()
        await self._elsewhere.refresh(partitions_elsewhere(groups, services.replicas))

    def collect(self) -> Iterator[Metric]:
        """All families, from one pass over the counters."""
        services = self._services
        meters, replicas = services.meters, services.replicas
        yield from request_metrics.topic_metrics(meters)
        yield from request_metrics.request_metrics(meters)
        yield from request_metrics.connection_metrics(meters)
        yield from request_metrics.purgatory_metrics(services.purgatories)
        yield from request_metrics.quota_metrics(services.quotas)
        yield GaugeMetricFamily(
            "headwater_fetch_sessions", "Fetch sessions.", value=len(services.sessions)
        )
        yield from share_metrics.share_metrics(services.shares)
        yield from share_coordinator_metrics(services.groups.coordinated(), services.share_states)
        yield CounterMetricFamily(
            "headwater_remote_read_errors",
            "Reads of tiered offsets that failed.",
            value=meters.remote_errors,
        )
        yield from replica_metrics.replica_metrics(replicas)
        yield from replica_metrics.log_dir_metrics(services.logs.by_folder(), services.disk_space)
        yield from replica_metrics.flush_metrics(services.logs.flush_times)
        yield from replica_metrics.cleaner_metrics(services.cleaner)
        yield from process_metrics.controller_metrics(self._controller)
        yield GaugeMetricFamily(
            "headwater_controller_id",
            "The active controller as this broker knows it.",
            value=services.view.controller_id,
        )
        end_offset = end_offsets(replicas, self._elsewhere.get)
        yield from process_metrics.group_metrics(services.groups.coordinated(), end_offset)
        yield from group_metrics.state_metrics(services.groups.coordinated())
        yield from group_metrics.consumer_group_metrics(services.groups.consumers.meters)
        yield from tier_metrics(tier_reports(services.groups.coordinated()))
        transactions, now_ms = services.transactions, services.clock.now_ms()
        yield from transaction_metrics.coordinator_metrics(transactions.counts(), now_ms)
        yield from transaction_metrics.marker_metrics(transactions.markers.totals)
        yield from transaction_metrics.verification_metrics(services.verifier)
        yield from epoch_metrics.epoch_metrics(
            services.sinks.tables(), services.sinks.replies, now_ms
        )
        yield from transaction_metrics.leader_metrics(replicas, transactions.max_timeout_ms, now_ms)
        yield from process_metrics.loop_metrics(self._lag)
        yield from process_metrics.process_metrics()

    def describe(self) -> list[Metric]:
        """No families: the registration of a collector must not collect."""
        return []


class _Collected:
    """A collector of families that are collected already, for `generate_latest`."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        """These families."""
        return self._families


class MetricsText:
    """The metrics of one broker as text."""

    def __init__(self, collector: BrokerCollector) -> None:
        self._collector = collector

    async def collect(self) -> list[Metric]:
        """Read the counters; the loop has its turn after each family."""
        await self._collector.prepare()
        families = []
        for family in self._collector.collect():
            families.append(family)
            await asyncio.sleep(0)
        return families

    @staticmethod
    def format(families: list[Metric]) -> bytes:
        """Prometheus text, as /metrics serves it (CONTENT_TYPE). Any thread."""
        return generate_latest(cast(CollectorRegistry, _Collected(families)))
