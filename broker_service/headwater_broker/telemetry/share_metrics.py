"""Share groups (KIP-932) in metrics: sessions, locked records, redeliveries, acknowledgements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from headwater_broker.replica.share.share_partition import AcknowledgeType
from headwater_broker.replica.share.share_partition_manager import ShareManager


def share_metrics(shares: ShareManager) -> Iterator[Metric]:
    """The share partitions that this broker leads, and its share sessions."""
    yield GaugeMetricFamily(
        "headwater_share_sessions", "Share sessions.", value=len(shares.sessions)
    )
    partitions: Counter[str] = Counter()
    locked: Counter[str] = Counter()
    in_flight: Counter[str] = Counter()
    for led in shares:
        group = led.key.group_id
        partitions[group] += 1
        if led.machine is not None:
            locked[group] += led.machine.locks
            in_flight[group] += led.machine.in_flight
    yield _by_group(
        "headwater_share_partitions", "Share partitions loaded here, by share group.", partitions
    )
    yield _by_group(
        "headwater_share_locked_records", "Records that members hold now, by share group.", locked
    )
    yield _by_group(
        "headwater_share_in_flight_records",
        "Records between start and end offset, by share group: bounded by "
        "share.partition.max.record.locks for each share partition.",
        in_flight,
    )
    counts = shares.counts
    for name, text, value in (
        ("acquired", "Records given to members, redelivered ones included.", counts.acquired),
        ("redelivered", "Records given to members that had been given before.", counts.redelivered),
        ("archived", "Records rejected, or delivered as often as allowed.", counts.archived),
        ("expired", "Records whose locks ended without an acknowledgement.", counts.expired),
    ):
        yield CounterMetricFamily(f"headwater_share_{name}_records", text, value=value)
    yield CounterMetricFamily(
        "headwater_share_write_failures",
        "Changes of share partitions that the share coordinator did not make durable.",
        value=counts.write_failures,
    )
    acknowledged = CounterMetricFamily(
        "headwater_share_acknowledged_offsets", "Acknowledged offsets, by type.", labels=["type"]
    )
    for kind in AcknowledgeType:
        acknowledged.add_metric([kind.name.lower()], shares.acknowledged[kind])
    yield acknowledged


def _by_group(name: str, text: str, values: Counter[str]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=["group"])
    for group, value in sorted(values.items()):
        family.add_metric([group], value)
    return family
