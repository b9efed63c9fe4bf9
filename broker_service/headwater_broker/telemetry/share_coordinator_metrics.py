"""Coordinators of share groups (KIP-932) in metrics: groups by state, and the states that they keep
in `__share_group_state`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from headwater_broker.coordinator.group.group_kind import GroupKind
from headwater_broker.coordinator.group.table import AnyGroup
from headwater_broker.coordinator.share_state.service import ShareStateService


def share_coordinator_metrics(
    groups: Iterable[AnyGroup], states: ShareStateService
) -> Iterator[Metric]:
    """Of the coordinators on this broker."""
    by_state = Counter(str(g.state.value) for g in groups if g.kind is GroupKind.SHARE)
    family = GaugeMetricFamily(
        "headwater_share_groups", "Share groups coordinated here, by state.", labels=["state"]
    )
    for state, count in sorted(by_state.items()):
        family.add_metric([state], count)
    yield family
    shards = states.coordinator.runtime.shards
    yield GaugeMetricFamily(
        "headwater_share_states",
        "Share partitions whose state is coordinated here.",
        value=sum(len(shard.states) for shard in shards),
    )
    yield GaugeMetricFamily(
        "headwater_share_state_records_in_vain",
        "Records of __share_group_state that no load needs, behind the oldest one that it does.",
        value=sum(shard.records_in_vain() for shard in shards),
    )
    yield CounterMetricFamily(
        "headwater_share_state_prunes",
        "How often a log of __share_group_state was pruned.",
        value=states.prunes,
    )
