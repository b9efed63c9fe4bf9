"""The second half of a restore: verified first, then offsets, then groups may come."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from catalog_doubles import A, B, MemoryNodes
from headwater.client.blocking.record_client import EARLIEST
from headwater.client.share_group_values import SharePartitionOffset
from headwater.client.values import (
    OffsetAndMetadata,
    OffsetAndTimestamp,
    PartitionDescription,
    TopicDescription,
    TopicPartition,
)
from headwater.errors import ErrorCode, KafkaError
from headwater.testing.clocks import ManualClock
from headwater_tier.restore.groups import GroupRestore, RestoreDiffersError
from unit.tier.test_restore import GAP, Lost

IDS = {"tiered": A, "plain": B}
COUNTS = {"tiered": 2, "plain": 1}
FIRST = {("tiered", 0): 600 + GAP, ("tiered", 1): 5 + GAP, ("plain", 0): 45 + GAP}
STARTS = {("tiered", 0): 10, ("tiered", 1): 5 + GAP, ("plain", 0): 45 + GAP}


class Cluster:
    """The `Admin` of a restored cluster."""

    def __init__(self) -> None:
        self.ids = dict(IDS)
        self.ends, self.starts = dict(FIRST), dict(STARTS)
        self.committed: dict[str, dict[Any, OffsetAndMetadata]] = {}
        self.shared: dict[str, dict[Any, int]] = {}
        self.refusal: Exception | None = None
        self.calls: list[str] = []

    def describe_topics(self, names: list[str]) -> dict[str, TopicDescription]:
        rows = {
            name: tuple(
                PartitionDescription(p, 0, 104, (0,), (0,), ()) for p in range(COUNTS[name])
            )
            for name in names
        }
        return {n: TopicDescription(n, self.ids[n], False, rows[n]) for n in names}

    def list_offsets(self, wanted: dict[Any, int]) -> dict[Any, OffsetAndTimestamp]:
        found = {}
        for tp, at in wanted.items():
            offset = self.starts[tp] if at == EARLIEST else self.ends[tp]
            found[TopicPartition(*tp)] = OffsetAndTimestamp(offset, -1, 0)
        return found

    def list_group_offsets(self, group: str) -> dict[Any, OffsetAndMetadata]:
        return self.committed.get(group, {})

    def alter_group_offsets(self, group: str, rows: dict[Any, OffsetAndMetadata]) -> None:
        self.calls.append(f"commit {group}")
        self.committed[group] = {TopicPartition(*tp): at for tp, at in rows.items()}

    def list_share_group_offsets(self, group: str) -> dict[Any, SharePartitionOffset]:
        known = self.shared.get(group, {})
        return {tp: SharePartitionOffset(at, 0, None) for tp, at in known.items()}

    def alter_share_group_offsets(
        self, group: str, rows: dict[Any, int]
    ) -> dict[Any, Exception | None]:
        self.calls.append(f"start {group} {len(rows)}")
        outcomes = dict.fromkeys((TopicPartition(*tp) for tp in rows), self.refusal)
        if self.refusal is None:
            self.shared.setdefault(group, {}).update(
                {TopicPartition(*k): v for k, v in rows.items()}
            )
        return outcomes

    def alter_configs(self, kind: str, name: str, settings: dict[str, Any]) -> None:
        self.calls.append(f"{kind} {name!r} {settings}")


class PassingClock(ManualClock):
    """A clock on which each look takes ten seconds: no wait is repeated often."""

    def monotonic(self) -> float:
        self.advance(10_000)
        return super().monotonic()


def second_half(folder: Path, cluster: Cluster) -> GroupRestore:
    lost = Lost(folder)
    report = lost.restore(MemoryNodes())
    clock = PassingClock()
    return GroupRestore(cluster, lost.source, report, clock, lambda _s: None)  # type: ignore[arg-type]


def test_offsets_are_committed_once_all_is_as_it_was(tmp_path: Path) -> None:
    cluster = Cluster()
    half = second_half(tmp_path, cluster)
    done = half.run()
    assert (done.groups, done.offsets, done.partitions) == (1, 2, 3)
    assert cluster.committed["app"] == {
        ("tiered", 0): OffsetAndMetadata(300, "m"),
        ("plain", 0): OffsetAndMetadata(45 + GAP, "m"),
    }
    half.run()
    assert cluster.calls == ["commit app", "start queue 3"], "what is done is not done again"
    half.admit_groups()
    assert cluster.calls[-1] == "broker '' {'headwater.restore.groups.pending': None}"


def test_a_share_group_begins_at_its_start_offsets(tmp_path: Path) -> None:
    cluster = Cluster()
    half = second_half(tmp_path, cluster)
    cluster.refusal = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "it is loading")
    with pytest.raises(KafkaError, match="it is loading"):
        half.run()
    cluster.refusal = None
    done = half.run()
    assert (done.share_groups, done.start_offsets) == (1, 3)
    assert cluster.shared["queue"] == {
        ("tiered", 0): 120,
        ("tiered", 1): 4,
        ("plain", 0): 45 + GAP,
    }
    cluster.shared["queue"][TopicPartition("tiered", 0)] = 1
    half.run()
    assert cluster.calls[-1] == "start queue 1", "only what differs: the rest may have moved on"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c: c.ids.update(tiered=B), "topic tiered has id"),
        (lambda c: c.ends.update({("tiered", 1): 4}), "tiered-1 ends at 4, and must not give"),
        (lambda c: c.starts.update({("plain", 0): 0}), "plain-0 starts at 0, its history at 1045"),
    ],
)
def test_a_difference_is_named_and_no_group_comes(tmp_path: Path, change: Any, words: str) -> None:
    cluster = Cluster()
    half = second_half(tmp_path, cluster)
    change(cluster)
    with pytest.raises(RestoreDiffersError, match=words):
        half.run()
    assert cluster.calls == []
