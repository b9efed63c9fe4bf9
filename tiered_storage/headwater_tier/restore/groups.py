"""The second half of a restore: on the running brokers, groups' offsets
and share groups' start offsets (`restore_plan` decides them) and what must be true.

Until it ends no group finds its coordinator: a consumer that came earlier would find no committed
offset, and its reset policy would send it elsewhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headwater.client.admin.client import Admin
from headwater.client.blocking.record_client import EARLIEST, LATEST
from headwater.client.values import OffsetAndMetadata, TopicDescription
from headwater.clock import Clock
from headwater.errors import HeadwaterError, KafkaError
from headwater.wire.restore_names import GROUPS_PENDING
from headwater_tier.delta import LogTable
from headwater_tier.restore.restore_plan import RestoredTopic, restored_offsets, restored_starts
from headwater_tier.restore.tables_and_zookeeper import MetadataReport, Source

BEGINNING_OF_TIME_MS = 0
"""Timestamp of a ListOffsets that finds the first record."""
POLL_S = 0.2
WAIT_S = 60.0


class RestoreDiffersError(HeadwaterError):
    """The restored cluster is not what the catalog says. Names the first difference."""


@dataclass(frozen=True, slots=True)
class GroupsReport:
    """What the second half has restored."""

    groups: int
    offsets: int
    partitions: int
    """Partitions whose id, replicas and offsets were checked."""
    share_groups: int
    start_offsets: int


class GroupRestore:
    """Commits offsets and verifies. May be repeated."""

    def __init__(
        self,
        admin: Admin,
        source: Source,
        report: MetadataReport,
        clock: Clock,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        """`pause` is for tests."""
        self._admin, self._source, self._report = admin, source, report
        self._clock, self._pause = clock, pause

    def run(self) -> GroupsReport:
        """Wait for leaders, verify topics, commit offsets. Raises RestoreDiffersError."""
        partitions = 0
        for topic in self._report.topics:
            self._verify(topic)
            partitions += len(topic.replicas)
        first = {t.name: (t, self._report.first_offsets[t.name]) for t in self._report.topics}
        committed = 0
        for group in self._report.groups:
            offsets = restored_offsets(group, first)
            rows = {tp: OffsetAndMetadata(at, text) for tp, (at, text) in offsets.items()}
            if rows and self._differs(group.name, rows):
                self._admin.alter_group_offsets(group.name, rows)
            committed += len(rows)
        started = 0
        for shared in self._report.share_groups:
            starts = restored_starts(shared, first)
            if starts:
                self._start(shared.name, starts)
            started += len(starts)
        return GroupsReport(
            len(self._report.groups),
            committed,
            partitions,
            len(self._report.share_groups),
            started,
        )

    def admit_groups(self) -> None:
        """Let every client find its group's coordinator."""
        self._admin.alter_configs("broker", "", {GROUPS_PENDING: None})

    def _start(self, group: str, starts: Mapping[tuple[str, int], int]) -> None:
        """Set the start offsets of a share group that differ (KIP-932). Raises KafkaError."""
        found = self._admin.list_share_group_offsets(group)
        known = {(topic, p): at.start_offset for (topic, p), at in found.items()}
        rows = {tp: at for tp, at in starts.items() if known.get(tp) != at}
        if not rows:
            return
        for error in self._admin.alter_share_group_offsets(group, rows).values():
            if error is not None:
                raise error

    def _differs(self, group: str, rows: Mapping[tuple[str, int], OffsetAndMetadata]) -> bool:
        found = self._admin.list_group_offsets(group)
        known = {(topic, p): (at.offset, at.metadata) for (topic, p), at in found.items()}
        return any(known.get(tp) != (at.offset, at.metadata) for tp, at in rows.items())

    def _verify(self, topic: RestoredTopic) -> None:
        described = self._led(topic)
        if described.topic_id != topic.topic_id:
            raise RestoreDiffersError(f"topic {topic.name} has id {described.topic_id}")
        if len(described.partitions) != len(topic.replicas):
            raise RestoreDiffersError(
                f"topic {topic.name} has {len(described.partitions)} partitions, not"
                f" {len(topic.replicas)}"
            )
        first = self._report.first_offsets[topic.name]
        starts: Mapping[int, int] = {}
        if topic.is_tiered:
            starts = LogTable(self._source.table(topic)).snapshot.starts
        keys = [(topic.name, p) for p in topic.replicas]
        deadline = self._clock.monotonic() + WAIT_S
        while True:
            problem = self._offsets_problem(keys, first, starts, is_tiered=topic.is_tiered)
            if problem is None:
                break
            if self._clock.monotonic() > deadline:
                raise RestoreDiffersError(problem)
            self._pause(POLL_S)

        if topic.is_tiered:
            self._read_history(topic)

    def _read_history(self, topic: RestoredTopic) -> None:
        """Have the leaders look into the table for the first record: they need its folder, and the
        credentials of its object store. Raises RestoreDiffersError."""
        table = LogTable(self._source.table(topic)).snapshot
        if not table.rows:
            return
        wanted = {(topic.name, p): BEGINNING_OF_TIME_MS for p in topic.replicas}
        try:
            self._admin.list_offsets(wanted)
        except KafkaError as error:
            raise RestoreDiffersError(
                f"brokers do not read the history of {topic.name}: {error}: see their"
                " headwater.tables.uri and headwater.tables.option.*, then run this command again"
            ) from error

    def _offsets_problem(
        self,
        keys: list[tuple[str, int]],
        first: Mapping[int, int],
        starts: Mapping[int, int],
        *,
        is_tiered: bool,
    ) -> str | None:
        earliest = self._admin.list_offsets(dict.fromkeys(keys, EARLIEST))
        latest = self._admin.list_offsets(dict.fromkeys(keys, LATEST))
        for topic, p in keys:
            end, start = latest[topic, p].offset, earliest[topic, p].offset  # type: ignore[index]
            wanted = starts.get(p, 0) if is_tiered else first[p]
            if end < first[p]:
                return f"{topic}-{p} ends at {end}, and must not give offsets below {first[p]}"
            if start < wanted:
                return f"{topic}-{p} starts at {start}, its history at {wanted}"
        return None

    def _led(self, topic: RestoredTopic) -> TopicDescription:
        """The topic once each partition has a leader. Raises RestoreDiffersError after WAIT_S."""
        deadline = self._clock.monotonic() + WAIT_S
        while True:
            found = self._admin.describe_topics([topic.name])[topic.name]
            leaderless = [p for p in found.partitions if p.leader < 0]
            if not leaderless:
                return found
            if self._clock.monotonic() > deadline:
                absent = leaderless[0]
                raise RestoreDiffersError(
                    f"{topic.name}-{absent.partition} has no leader: start one of the brokers"
                    f" {list(absent.replicas)}, then run this command again"
                )
            self._pause(POLL_S)
