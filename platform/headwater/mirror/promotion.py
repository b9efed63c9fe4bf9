"""Failover: fences the mirror, reports what the target lacks, and opens the target for writing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from headwater.client.admin.acls import AclCalls
from headwater.client.cluster import Cluster
from headwater.client.values import TopicPartition
from headwater.errors import KafkaError
from headwater.mirror.acl_sync import replace_acls
from headwater.mirror.config import MirrorConfig
from headwater.mirror.core.state import (
    MirroredAcls,
    MirrorState,
    SourceEnd,
    acls_record,
    positions_topic,
    promoted_record,
)
from headwater.mirror.group_promotion import sync_known_groups
from headwater.mirror.state_reader import READ_UNCOMMITTED, count_records, read_state
from headwater.mirror.state_writer import write_state
from headwater.mirror.status import (
    REACH_MS,
    PartitionStatus,
    bucket_count,
    connected,
    partition_rows,
    source_ends,
)


@dataclass(frozen=True, slots=True)
class Gap:
    """What the target lacks of one partition: source offsets from the position to the end."""

    tp: TopicPartition
    first: int
    end: int
    """Where the source ended, as far as is known."""
    records: int | None
    """Visible records in between; None while the source cannot be read."""


@dataclass(slots=True)
class Promotion:
    """The report of a promotion."""

    config: MirrorConfig
    promoted_ms: int
    source_error: str
    """Why the source cannot be read; empty if it can."""
    partitions: list[PartitionStatus] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    groups: int = 0
    """How many groups' offsets were translated."""
    known_at_ms: int = 0
    """When the ends of the source were last seen."""

    def document(self) -> dict[str, Any]:
        """As JSON."""
        gaps = {gap.tp: gap for gap in self.gaps}
        return {
            "mirror": self.config.mirror_id,
            "promoted_ms": self.promoted_ms,
            "target": self.config.target.servers,
            "source_reachable": not self.source_error,
            "source_error": self.source_error or None,
            "source_ends_known_at_ms": self.known_at_ms,
            "gap_offsets": sum(g.end - g.first for g in self.gaps),
            "gap_records": None if self.source_error else sum(g.records or 0 for g in self.gaps),
            "partitions": [
                {
                    "topic": p.tp.topic,
                    "partition": p.tp.partition,
                    "position": p.position.next_offset,
                    "source_end": None if p.end is None else p.end.last_stable_offset,
                    "gap_offsets": gaps[p.tp].end - gaps[p.tp].first if p.tp in gaps else 0,
                    "gap_records": gaps[p.tp].records if p.tp in gaps else 0,
                    "stopped": p.stopped or None,
                }
                for p in self.partitions
            ],
        }


async def promote(config: MirrorConfig, say: Callable[[str], object]) -> Promotion:
    """Fence the mirror for good, then report. `say` shows the steps. A promotion that was cut off
    may be repeated. Raises KafkaError, UsageError."""
    async with connected(config.target) as target:
        buckets = await bucket_count(target, config)
        topic = positions_topic(config.mirror_id)
        state = await read_state(target, topic, range(buckets))
        promoted_ms = state.promoted_ms or target.clock.now_ms()
        for bucket in range(buckets):
            await write_state(target, config, bucket, [promoted_record(promoted_ms)])
        say(f"fenced {buckets} buckets: mirror {config.mirror_id} writes no more")
        state = await read_state(target, topic, range(buckets), isolation=READ_UNCOMMITTED)
        await _open_for_writing(target, config, state, say)
        made = await report(config, state, promoted_ms, target.clock.now_ms())
        if config.syncs_groups:
            has_source = not made.source_error
            made.groups = await sync_known_groups(
                target, config, state, buckets, say, has_source=has_source
            )
    return made


async def _open_for_writing(
    target: Cluster, config: MirrorConfig, state: MirrorState, say: Callable[[str], object]
) -> None:
    """Give the ACLs that were withheld."""
    acls = state.acls
    if config.syncs_acls and acls.promoted - acls.given:
        given, taken = await replace_acls(AclCalls(target), acls.given, acls.promoted)
        await write_state(
            target, config, 0, [acls_record(MirroredAcls(acls.promoted, acls.promoted))]
        )
        say(f"ACLs: {given} given, {taken} replaced; clients may write")


async def report(
    config: MirrorConfig, state: MirrorState, promoted_ms: int, now_ms: int
) -> Promotion:
    """What the target lacks. Exact when the source can be read, else by the last heartbeats."""
    ends: dict[TopicPartition, SourceEnd] = {}
    counts: dict[TopicPartition, int] = {}
    error, known_at_ms = "", now_ms
    try:
        async with connected(config.source, reach_ms=REACH_MS) as source:
            ends = await source_ends(source, state, config)
            counts = await _counts(source, state, ends)
    except (KafkaError, OSError) as failure:
        error = str(failure)
        known_at_ms = min((b.time_ms for b in state.heartbeats.values()), default=0)
    rows = partition_rows(state, ends)
    made = Promotion(config, promoted_ms, error, rows, known_at_ms=known_at_ms)
    for row in made.partitions:
        if row.lag:
            assert row.end is not None
            first, end = row.position.next_offset, row.end.last_stable_offset
            made.gaps.append(Gap(row.tp, first, end, counts.get(row.tp)))
    return made


async def _counts(
    source: Cluster, state: MirrorState, ends: dict[TopicPartition, SourceEnd]
) -> dict[TopicPartition, int]:
    """How many visible records follow each position."""
    found = {}
    for tp, end in ends.items():
        position = state.positions.get(tp)
        first = max(0 if position is None else position.next_offset, end.log_start_offset)
        if first < end.last_stable_offset:
            found[tp] = await count_records(source, tp, first, end.last_stable_offset)
    return found
