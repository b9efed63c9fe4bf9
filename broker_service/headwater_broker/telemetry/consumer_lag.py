"""What the status document and the metrics tell of consumer groups: state, offsets, lag.

A coordinator knows what its groups committed, and how far a partition goes only where it hosts it.
So the document carries the committed offsets, and whoever has all brokers' documents computes the
lag; the metrics of one broker have a topic's lag only where it hosts all of the partitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from headwater_broker.coordinator.group.classic_group import Group
from headwater_broker.replica.manager import ReplicaManager

GROUP_OFFSETS_MAX = 2_000
"""Committed offsets in one document; groups beyond are counted and left out."""


def shown_groups(groups: Iterable[Group]) -> tuple[list[Group], int]:
    """(the groups whose offsets fit into a document, how many are left out)."""
    shown: list[Group] = []
    room, left_out = GROUP_OFFSETS_MAX, 0
    for group in groups:
        room -= max(1, len(group.offsets))
        if room >= 0:
            shown.append(group)
        else:
            left_out += 1
    return shown, left_out


def describe_group(group: Group) -> dict[str, Any]:
    """A group's row of the status document."""
    return {
        "group_id": group.group_id,
        "state": group.state.value,
        "members": len(group.members),
        "partitions": [
            {"topic": topic, "partition": partition, "committed_offset": value.offset}
            for (topic, partition), value in sorted(group.offsets.items())
        ],
    }


def topic_lags(group: Group, replicas: ReplicaManager) -> Iterator[tuple[str, int]]:
    """(topic, records behind) for each topic whose committed partitions are all hosted here."""
    lags: dict[str, int] = {}
    unknown: set[str] = set()
    for (topic, partition), value in group.offsets.items():
        hosted = replicas.partitions.get((topic, partition))
        if hosted is None:
            unknown.add(topic)
        else:
            lags[topic] = lags.get(topic, 0) + max(0, hosted.high_watermark - value.offset)
    return ((topic, lag) for topic, lag in sorted(lags.items()) if topic not in unknown)
