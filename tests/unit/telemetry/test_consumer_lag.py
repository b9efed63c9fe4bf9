"""Consumer groups in the status document and the metrics."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from headwater_broker.coordinator.group.classic.group import Group
from headwater_broker.coordinator.group.records import OffsetCommitValue
from headwater_broker.replica.replica_manager import ReplicaManager
from headwater_broker.telemetry.consumer_lag import (
    GROUP_OFFSETS_MAX,
    describe_group,
    end_offsets,
    partitions_elsewhere,
    shown_groups,
    topic_lags,
)


def group(name: str, **topics: list[int]) -> Group:
    """A group with the committed offsets of each topic's partitions."""
    return Group(
        name,
        offsets={
            (topic, number): OffsetCommitValue(offset=offset, metadata="", commit_timestamp=1)
            for topic, offsets in topics.items()
            for number, offset in enumerate(offsets)
        },
    )


def hosting(**watermarks: list[int]) -> ReplicaManager:
    partitions = {
        (topic, number): SimpleNamespace(high_watermark=end)
        for topic, ends in watermarks.items()
        for number, end in enumerate(ends)
    }
    return cast(ReplicaManager, SimpleNamespace(partitions=partitions))


def test_lag_needs_no_replica_of_the_topic_here() -> None:
    """An alert on the lag fires whichever broker coordinates the group."""
    reader = group("g", here=[5, 10], ahead=[9], partly=[1, 2], elsewhere=[4], nowhere=[1])
    replicas = hosting(here=[10, 20], ahead=[7], partly=[100])
    ends = {("elsewhere", 0): 50, ("partly", 1): 5, ("here", 0): 10**6}
    end_offset = end_offsets(replicas, lambda *key: ends.get(key))
    assert topic_lags(reader, end_offset) == {
        "ahead": 0,
        "here": 15,
        "partly": 99 + 3,
        "elsewhere": 46,
    }
    wanted = {("partly", 1), ("elsewhere", 0), ("nowhere", 0)}
    assert set(partitions_elsewhere([reader], replicas)) == wanted


def test_a_partition_whose_end_is_not_known_does_not_hide_the_others() -> None:
    reader = group("g", t=[1, 2])
    assert topic_lags(reader, end_offsets(hosting(t=[100]), lambda *_: None)) == {"t": 99}


def test_a_document_has_room_for_some_groups_and_counts_the_others() -> None:
    large = group("large", t=[0] * (GROUP_OFFSETS_MAX - 1))
    shown, left_out = shown_groups([large, group("bare"), group("more", t=[0])])
    assert ([g.group_id for g in shown], left_out) == (["large", "bare"], 1)
    row = describe_group(group("g", t=[3, 4]))
    assert (row["group_id"], row["state"], row["members"]) == ("g", "Empty", 0)
    assert [(p["partition"], p["committed_offset"]) for p in row["partitions"]] == [(0, 3), (1, 4)]
