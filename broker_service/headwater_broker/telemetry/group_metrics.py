"""Metric families of groups: their states, and what consumer groups of KIP-848 went through."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from headwater_broker.coordinator.group.consumer.meters import ConsumerGroupMeters
from headwater_broker.coordinator.group.table import AnyGroup


def state_metrics(groups: Iterable[AnyGroup]) -> Iterator[Metric]:
    """Groups coordinated here."""
    counts = Counter((group.kind.value, str(group.state.value)) for group in groups)
    family = GaugeMetricFamily(
        "headwater_groups", "Groups coordinated here, by type and state.", labels=["type", "state"]
    )
    for (kind, state), count in sorted(counts.items()):
        family.add_metric([kind, state], count)
    yield family


def consumer_group_metrics(meters: ConsumerGroupMeters) -> Iterator[Metric]:
    """Rebalances and fenced members of consumer groups."""
    totals = (
        ("rebalances", "Target assignments put in place.", meters.rebalances),
        ("settled", "Rebalances after which every member had all of its part.", meters.settled),
        (
            "settling_seconds",
            "How long these took, from the change to the last member's heartbeat.",
            meters.settling_ms / 1000,
        ),
        (
            "refused_epochs",
            "Heartbeats with an epoch that was not the member's.",
            meters.refused_epochs,
        ),
    )
    for name, text, value in totals:
        yield CounterMetricFamily(f"headwater_consumer_group_{name}", text, value=value)
    fenced = CounterMetricFamily(
        "headwater_consumer_group_fenced_members",
        "Members of consumer groups that were put out: they were silent for their session, or did "
        "not give partitions up within the rebalance timeout.",
        labels=["reason"],
    )
    for reason in ("session", "rebalance"):
        fenced.add_metric([reason], meters.fenced.get(reason, 0))
    yield fenced
