"""Consumer groups in the status document and the metrics: state, committed offsets, lag."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from headwater_broker.coordinator.group.table import AnyGroup
from headwater_broker.replica.replica_manager import ReplicaManager

GROUP_OFFSETS_MAX = 2_000
"""Committed offsets in one document; groups beyond are counted and left out."""

EndOffset = Callable[[str, int], int | None]
"""(topic, partition) -> its high watermark; None when it is not known."""


def shown_groups(groups: Iterable[AnyGroup]) -> tuple[list[AnyGroup], int]:
    """(the groups whose offsets fit into a document, how many are left out)."""
    shown: list[AnyGroup] = []
    room, left_out = GROUP_OFFSETS_MAX, 0
    for group in groups:
        room -= max(1, len(group.offsets))
        if room >= 0:
            shown.append(group)
        else:
            left_out += 1
    return shown, left_out


def describe_group(group: AnyGroup) -> dict[str, Any]:
    """A group's row of the status document; its readers compute the lag from all brokers'
    documents."""
    return {
        "group_id": group.group_id,
        "state": group.state.value,
        "members": len(group.members),
        "partitions": [
            {"topic": topic, "partition": partition, "committed_offset": value.offset}
            for (topic, partition), value in sorted(group.offsets.items())
        ],
    }


def partitions_elsewhere(
    groups: Iterable[AnyGroup], replicas: ReplicaManager
) -> Iterator[tuple[str, int]]:
    """Partitions with a committed offset of which no replica is hosted here."""
    for group in groups:
        for key in group.offsets:
            if key not in replicas.partitions:
                yield key


def end_offsets(replicas: ReplicaManager, elsewhere: EndOffset) -> EndOffset:
    """End offsets of the replicas hosted here, and `elsewhere` of all others."""

    def end_offset(topic: str, partition: int) -> int | None:
        hosted = replicas.partitions.get((topic, partition))
        return elsewhere(topic, partition) if hosted is None else hosted.high_watermark

    return end_offset


def topic_lags(group: AnyGroup, end_offset: EndOffset) -> dict[str, int]:
    """Records that the group has not committed, by topic.

    A partition whose end is not known counts nothing: the lag is then too low, but an alert on it
    still fires. A topic without any known partition is left out.
    """
    lags: dict[str, int] = {}
    for (topic, partition), committed in sorted(group.offsets.items()):
        end = end_offset(topic, partition)
        if end is not None:
            lags[topic] = lags.get(topic, 0) + max(0, end - committed.offset)
    return lags
