"""`headwater tier serve --metrics HOST:PORT`: the service's own counters, for Prometheus.

Brokers export the topics' reports too (`headwater_tier_*`); these are the counters of one process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from headwater.clock import Clock
from headwater_tier.service.service import TieringService

PREFIX = "headwater_tier_service_"
COUNTERS = (
    ("rows", "Rows that this process has committed."),
    ("fetched_bytes", "Bytes of record batches fetched."),
    ("commits", "Commits to log tables."),
    ("failures", "Looks, turns and commits that failed."),
)
"""Attributes of `TopicState`."""


class ServiceCollector:
    """Reads the counters of a running service; any thread may collect."""

    def __init__(
        self, service: TieringService, folded_files: Callable[[], int], clock: Clock
    ) -> None:
        self._service = service
        self._folded_files = folded_files
        self._clock = clock

    def collect(self) -> Iterator[Metric]:
        """Counters and gauges by topic, and of the process."""
        states = list(self._service.topics.values())
        for name, help_text in COUNTERS:
            family = CounterMetricFamily(PREFIX + name, help_text, labels=["topic"])
            for state in states:
                family.add_metric([state.name], getattr(state, name))
            yield family
        yield CounterMetricFamily(
            PREFIX + "folded_files",
            "Small files rewritten into larger ones.",
            value=self._folded_files(),
        )
        behind = GaugeMetricFamily(
            PREFIX + "behind_seconds",
            "Age of the oldest record that is not in the table, at most.",
            labels=["topic"],
        )
        achieved = GaugeMetricFamily(
            PREFIX + "achieved_seconds",
            "Mean time from a record to its commit, of the last commits at their oldest record.",
            labels=["topic"],
        )
        now = self._clock.monotonic()
        for name, schedule in list(self._service.schedule.topics.items()):
            behind.add_metric([name], schedule.seconds_behind(now))
            if schedule.achieved_s is not None:
                achieved.add_metric([name], schedule.achieved_s)
        yield behind
        yield achieved
        yield GaugeMetricFamily(PREFIX + "topics", "Topics of this process.", value=len(states))

    def describe(self) -> list[Metric]:
        """No families: the registration of a collector must not collect."""
        return []
