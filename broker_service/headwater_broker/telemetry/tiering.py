"""Tiering in the status document and the metrics: what the services report with their offsets.

The broker that coordinates the group `__headwater_tier` has the reports of all topics. A report is
a client's text: a field of another type than expected counts as absent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

from prometheus_client.core import GaugeMetricFamily, Metric

from headwater.wire.tier_status import STATUS_PARTITION, TIER_GROUP, status_fields
from headwater_broker.coordinator.group.table import AnyGroup

ROWS_MAX = 2_000
"""Topics in one document and in the metrics."""
_GAUGES = (
    ("headwater_tier_rows", "rows", 1.0, "Rows of the topic's Delta table."),
    ("headwater_tier_bytes", "size_bytes", 1.0, "Bytes of the table's files."),
    ("headwater_tier_files", "files", 1.0, "Files of the table."),
    ("headwater_tier_behind_records", "behind", 1.0, "Committed records not in the table yet."),
    ("headwater_tier_behind_seconds", "behind_ms", 1e-3, "Age of the oldest of them, at most."),
    ("headwater_tier_asked_seconds", "asked_ms", 1e-3, "The topic's delta.interval.ms."),
    ("headwater_tier_achieved_seconds", "achieved_ms", 1e-3, "Mean of the last commits' delays."),
    ("headwater_tier_reported_timestamp_seconds", "reported_ms", 1e-3, "Time of this report."),
)


_fields = lru_cache(maxsize=ROWS_MAX)(status_fields)
"""Most reports are the same as a moment ago: a document costs no parsing of them."""


def tier_reports(groups: Iterable[AnyGroup]) -> list[dict[str, Any]]:
    """The reports that this broker coordinates, by topic."""
    found: list[dict[str, Any]] = []
    for group in groups:
        if group.group_id != TIER_GROUP:
            continue
        for (topic, partition), value in sorted(group.offsets.items()):
            if partition != STATUS_PARTITION or len(found) >= ROWS_MAX:
                continue
            fields = _fields(value.metadata)
            if fields is not None:
                found.append({**fields, "topic": topic})
    return found


def tier_metrics(reports: list[dict[str, Any]]) -> Iterator[Metric]:
    """The numbers of the reports, as gauges per topic."""
    for name, key, factor, help_text in _GAUGES:
        family = GaugeMetricFamily(name, help_text, labels=["topic"])
        for report in reports:
            value = report.get(key)
            if isinstance(value, int | float):
                family.add_metric([report["topic"]], value * factor)
        yield family
    failed = GaugeMetricFamily(
        "headwater_tier_failed",
        "1 while the topic's tiering waits after an error.",
        labels=["topic"],
    )
    for report in reports:
        failed.add_metric([report["topic"]], float(report.get("state") == "failed"))
    yield failed
