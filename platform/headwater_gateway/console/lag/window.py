"""Samples of groups over the last five minutes, and what they say. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from headwater.client.values import GroupDescription, TopicPartition
from headwater_gateway.console.lag.verdict import (
    SAMPLE_S,
    WINDOW_S,
    Finding,
    Rates,
    Sample,
    judge,
    rates,
    worst,
)

SAMPLES_MAX = int(WINDOW_S / SAMPLE_S) + 1
STABLE = "Stable"


class LogEnds(NamedTuple):
    """Where a partition's log begins and ends."""

    log_start: int
    last_stable: int
    high_watermark: int
    has_leader: bool = True


class PartitionLag(NamedTuple):
    """A partition as a group reads it."""

    partition: TopicPartition
    now: Sample
    finding: Finding
    speed: Rates | None
    trend: tuple[int, ...]
    """The lag at each sample."""


class Trend(NamedTuple):
    """The lag of a group over time, by topic."""

    times_s: list[float]
    by_topic: dict[str, list[int | None]]


class GroupWindow:
    """The samples of one group."""

    def __init__(self) -> None:
        self._times_s: deque[float] = deque(maxlen=SAMPLES_MAX)
        self._wall_s: deque[float] = deque(maxlen=SAMPLES_MAX)
        self._samples: dict[TopicPartition, deque[Sample]] = {}
        self._generation = 0
        self._former: GroupDescription | None = None
        self._judged: list[PartitionLag] | None = None
        """Of the last sample; judged when someone looks."""

    @property
    def sample_count(self) -> int:
        """How many samples there are."""
        return len(self._times_s)

    def add(
        self,
        at_s: float,
        wall_s: float,
        group: GroupDescription,
        committed: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, LogEnds],
        throttled: frozenset[TopicPartition] = frozenset(),
    ) -> None:
        """One sample. Partitions without an entry in `ends` are left out: their topic is gone."""
        self._judged = None
        self._count_rebalances(group)
        self._times_s.append(at_s)
        self._wall_s.append(wall_s)
        owners = {tp: m.member_id for m in group.members for tp in m.assignment}
        known = {tp for tp in {*committed, *owners} if tp in ends}
        for gone in self._samples.keys() - known:
            del self._samples[gone]
        for tp in known:
            log = ends[tp]
            sample = Sample(
                at_s,
                committed.get(tp),
                log.log_start,
                log.last_stable,
                log.high_watermark,
                owners.get(tp),
                self._generation,
                log.has_leader,
                tp in throttled,
            )
            self._samples.setdefault(tp, deque(maxlen=SAMPLES_MAX)).append(sample)

    def _count_rebalances(self, group: GroupDescription) -> None:
        """Replies to DescribeGroups lack the generation: each rebalance that is seen counts."""
        former, self._former = self._former, group
        if former is None:
            return
        has_begun = former.state == STABLE and group.state != STABLE
        is_other = former.state == STABLE == group.state and _members(former) != _members(group)
        if has_begun or is_other:
            self._generation += 1

    def partitions(self) -> list[PartitionLag]:
        """Each partition's last sample and its verdict, by topic and number."""
        if self._judged is None:
            self._judged = [
                PartitionLag(
                    tp,
                    samples[-1],
                    judge(list(samples)),
                    rates(samples),
                    tuple(sample.lag for sample in samples),
                )
                for tp, samples in sorted(self._samples.items())
            ]
        return self._judged

    def worst(self) -> Finding | None:
        """The finding on the group, with the partition's name; None without partitions."""
        return worst(
            row.finding._replace(
                reason=f"{row.partition.topic}-{row.partition.partition}: {row.finding.reason}"
            )
            for row in self.partitions()
        )

    @property
    def lag(self) -> int:
        """Of all partitions now."""
        return sum(samples[-1].lag for samples in self._samples.values())

    def totals(self) -> list[int]:
        """The group's lag at each sample, of all partitions."""
        rows = self.trend().by_topic.values()
        return [sum(lag or 0 for lag in column) for column in zip(*rows, strict=True)]

    def trend(self) -> Trend:
        """The group's lag over the window, for a chart; times in s since 1970."""
        by_topic: dict[str, list[int | None]] = {}
        for tp, samples in sorted(self._samples.items()):
            at = {sample.at_s: sample.lag for sample in samples}
            row = by_topic.setdefault(tp.topic, [None] * len(self._times_s))
            for i, time_s in enumerate(self._times_s):
                if time_s in at:
                    row[i] = (row[i] or 0) + at[time_s]
        return Trend(list(self._wall_s), by_topic)


def _members(group: GroupDescription) -> frozenset[tuple[str, tuple[TopicPartition, ...]]]:
    return frozenset((m.member_id, m.assignment) for m in group.members)
