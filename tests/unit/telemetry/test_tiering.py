"""Reports of tiering in the status document and the metrics."""

from __future__ import annotations

import json
from typing import Any

from headwater.wire.tier_status import TIER_GROUP
from headwater_broker.coordinator.group.classic.group import Group
from headwater_broker.coordinator.group.records import OffsetCommitValue
from headwater_broker.telemetry.tiering import tier_metrics, tier_reports


def group(name: str, **metadata: str) -> Group:
    """A group with an offset of partitions 0 and 1 of each topic, and partition 0's metadata."""
    offsets = {}
    for topic, text in metadata.items():
        for partition, own in ((0, text), (1, "")):
            offsets[topic, partition] = OffsetCommitValue(
                offset=5, metadata=own, commit_timestamp=1
            )
    return Group(name, offsets=offsets)


def report(**fields: Any) -> str:
    return json.dumps({"format": 1, **fields})


def test_only_reports_of_the_tier_group_are_shown() -> None:
    text = report(rows=7, topic="another")
    groups = [group("readers", a=text), group(TIER_GROUP, b=text, c="", d="7", e='{"format":9}')]
    assert tier_reports(groups) == [{"rows": 7, "topic": "b"}]


def test_the_numbers_of_a_report_are_gauges_and_odd_fields_count_as_absent() -> None:
    reports = tier_reports(
        [group(TIER_GROUP, a=report(rows=7, behind_ms=1500, files="x", state="failed"))]
    )
    found = {
        (sample.name, sample.labels["topic"]): sample.value
        for family in tier_metrics(reports)
        for sample in family.samples
    }
    assert found == {
        ("headwater_tier_rows", "a"): 7,
        ("headwater_tier_behind_seconds", "a"): 1.5,
        ("headwater_tier_failed", "a"): 1.0,
    }
