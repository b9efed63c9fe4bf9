"""Metric families of the broker as a whole: event loop, process, controller, consumer groups."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from headwater import __version__
from headwater_broker.controller.controller import ControllerService
from headwater_broker.coordinator.group.table import AnyGroup
from headwater_broker.runtime.loop_lag import LagProbe
from headwater_broker.telemetry.consumer_lag import EndOffset, topic_lags
from headwater_broker.telemetry.process_stats import rss_bytes


def process_metrics() -> Iterator[Metric]:
    """The version and the resident memory of the broker."""
    info = GaugeMetricFamily(
        "headwater_build_info", "1; the labels are the versions.", labels=["version", "python"]
    )
    info.add_metric([__version__, platform.python_version()], 1)
    yield info
    yield GaugeMetricFamily(
        "process_resident_memory_bytes", "Resident memory of the broker.", value=rss_bytes()
    )


def loop_metrics(lag: LagProbe) -> Iterator[Metric]:
    """Load and delays of the event loop."""
    gauges = (
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
            "Longest busy stretch of the event loop within a minute, without waits for a core.",
            lag.recent_turn_s,
        ),
        (
            "loop_turn_longest_seconds",
            "Longest busy stretch of the event loop since start, without waits for a core.",
            lag.longest_turn_s,
        ),
        (
            "loop_idle_ratio",
            "Share of the last minute in which the event loop had nothing to do.",
            lag.recent_idle_share,
        ),
    )
    for name, text, value in gauges:
        yield GaugeMetricFamily(f"headwater_{name}", text, value=value)
    yield CounterMetricFamily(
        "headwater_loop_idle_seconds",
        "Time in which the event loop had nothing to do.",
        value=lag.idle_s,
    )
    yield CounterMetricFamily(
        "headwater_loop_late", "Turns of the event loop above 20 ms.", value=lag.late_total
    )


def controller_metrics(controller: ControllerService) -> Iterator[Metric]:
    """Gauges of the active controller; other brokers have 0, so that the sum is the cluster's."""
    gauges = (
        ("active_controller", "1 on the active controller, 0 elsewhere.", controller.is_active),
        (
            "offline_partitions",
            "Partitions of the cluster without a leader; 0 except on the active controller.",
            controller.offline_partitions,
        ),
    )
    for name, text, value in gauges:
        yield GaugeMetricFamily(f"headwater_{name}", text, value=value)
    yield CounterMetricFamily(
        "headwater_unclean_elections",
        "Leaders out of sync that this broker elected as controller.",
        value=controller.unclean_elections_total,
    )


def group_metrics(groups: Iterable[AnyGroup], end_offset: EndOffset) -> Iterator[Metric]:
    """Consumer groups coordinated here."""
    members = GaugeMetricFamily(
        "headwater_group_members", "Members of a group coordinated here.", labels=["group"]
    )
    lag = GaugeMetricFamily(
        "headwater_group_lag",
        "Records that a group has not committed; exported by its coordinator. A partition whose "
        "leader cannot be reached counts as of the last time that it could.",
        labels=["group", "topic"],
    )
    for group in groups:
        members.add_metric([group.group_id], len(group.members))
        for topic, behind in topic_lags(group, end_offset).items():
            lag.add_metric([group.group_id, topic], behind)
    yield from (members, lag)
