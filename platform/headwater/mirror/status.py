"""The mirror as seen from outside: `headwater mirror status` and `positions`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from headwater.client.admin.topics import list_one_offset
from headwater.client.cluster import Cluster
from headwater.client.values import TopicPartition
from headwater.errors import KafkaError, UsageError
from headwater.mirror.config import MirrorConfig, Side
from headwater.mirror.core.selection import mirrored_topics
from headwater.mirror.core.state import MirrorState, Position, SourceEnd, positions_topic
from headwater.mirror.source_reader import EARLIEST, LATEST, READ_COMMITTED
from headwater.mirror.state_reader import READ_UNCOMMITTED, read_state

ALIVE_S = 15.0
"""A bucket without a heartbeat for so long has no owner."""
REACH_MS = 2_000
"""A source that refuses connections for so long is gone."""
API_TIMEOUT_MS = 15_000


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """How far a partition is mirrored."""

    tp: TopicPartition
    position: Position
    target_end: int
    """The target offset after the last mirrored record; 0 without any."""
    end: SourceEnd | None
    """Of the source: now if it can be reached, else by the last heartbeat."""
    stopped: str

    @property
    def lag(self) -> int | None:
        """Offsets in the source that are not mirrored yet; markers count."""
        if self.end is None or self.end.last_stable_offset < 0:
            return None
        return max(0, self.end.last_stable_offset - self.position.next_offset)


@dataclass(slots=True)
class MirrorStatus:
    """A mirror at one moment."""

    config: MirrorConfig
    state: MirrorState
    buckets: int
    now_ms: int
    source_error: str = ""
    """Why the source cannot be reached; empty if it can."""
    partitions: list[PartitionStatus] = field(default_factory=list)

    @property
    def troubles(self) -> list[str]:
        """What is retried, by the last heartbeats."""
        return [text for _, beat in sorted(self.state.heartbeats.items()) for text in beat.troubles]

    @property
    def is_running(self) -> bool:
        """True while every bucket has an owner that lives."""
        beats = self.state.heartbeats
        alive = [b for b in beats.values() if self.now_ms - b.time_ms < ALIVE_S * 1000]
        return len(alive) == self.buckets and self.state.promoted_ms is None

    @property
    def word(self) -> str:
        """The state in one word."""
        if self.state.promoted_ms is not None:
            return "promoted"
        if not self.state.heartbeats:
            return "new"
        return "running" if self.is_running else "down"

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "mirror": self.config.mirror_id,
            "state": self.word,
            "source": self.config.source.servers,
            "target": self.config.target.servers,
            "source_reachable": not self.source_error,
            "source_error": self.source_error or None,
            "promoted_ms": self.state.promoted_ms,
            "lag": sum(p.lag or 0 for p in self.partitions),
            "stopped": sum(bool(p.stopped) for p in self.partitions),
            "buckets": [
                {"bucket": number, "owner": b.owner, "heartbeat_age_ms": self.now_ms - b.time_ms}
                for number, b in sorted(self.state.heartbeats.items())
            ],
            "partitions": [_row(p) for p in self.partitions],
            "troubles": self.troubles,
            "groups": [
                {"group": group, "topic": tp.topic, "partition": tp.partition, "source": at.source,
                 "target": at.target}
                for group, offsets in sorted(self.state.groups.items())
                for tp, at in sorted(offsets.items())
            ],
        }  # fmt: skip


def _row(p: PartitionStatus) -> dict[str, Any]:
    return {
        "topic": p.tp.topic,
        "partition": p.tp.partition,
        "position": p.position.next_offset,
        "source_end": None if p.end is None else p.end.last_stable_offset,
        "lag": p.lag,
        "target_end": p.target_end,
        "newest_ms": p.position.timestamp,
        "stopped": p.stopped or None,
    }


@asynccontextmanager
async def connected(side: Side, *, reach_ms: float = 10_000) -> AsyncIterator[Cluster]:
    """A connected view of one side. Raises KafkaError that names the side."""
    options = replace(side.options, default_api_timeout_ms=API_TIMEOUT_MS)
    cluster = Cluster(side.bootstrap, options)
    try:
        try:
            await cluster.bootstrap(reach_ms)
        except KafkaError as error:
            raise KafkaError(error.code, f"the mirror's {side.name}: {error.detail}") from error
        yield cluster
    finally:
        await cluster.close()


async def bucket_count(target: Cluster, config: MirrorConfig) -> int:
    """How many buckets the mirror has. Raises UsageError if it never ran."""
    topic = positions_topic(config.mirror_id)
    await target.refresh(None)
    known = target.cache.topics.get(topic)
    if known is None:
        raise UsageError(
            f"mirror {config.mirror_id} never ran: {config.target.servers} has no topic {topic}"
        )
    return len(known.partitions)


async def mirror_status(config: MirrorConfig) -> MirrorStatus:
    """The status now. Raises KafkaError, UsageError."""
    async with connected(config.target) as target:
        buckets = await bucket_count(target, config)
        topic = positions_topic(config.mirror_id)
        state = await read_state(target, topic, range(buckets), isolation=READ_COMMITTED)
        found = MirrorStatus(config, state, buckets, target.clock.now_ms())
    try:
        async with connected(config.source, reach_ms=REACH_MS) as source:
            ends = await source_ends(source, state, config)
    except (KafkaError, OSError) as error:
        found.source_error = str(error)
        ends = {}
    found.partitions = partition_rows(state, ends)
    return found


async def mirror_positions(config: MirrorConfig) -> dict[TopicPartition, Position]:
    """Partition -> its position; only the target is asked. Raises KafkaError, UsageError."""
    async with connected(config.target) as target:
        buckets = await bucket_count(target, config)
        state = await read_state(target, positions_topic(config.mirror_id), range(buckets))
        return state.positions


def partition_rows(
    state: MirrorState, ends: dict[TopicPartition, SourceEnd]
) -> list[PartitionStatus]:
    """A row per mirrored partition; of those without a known end the heartbeats have the last."""
    told = {tp: end for b in state.heartbeats.values() for tp, end in b.source_ends.items()}
    stopped = {tp: why for b in state.heartbeats.values() for tp, why in b.stopped.items()}
    rows = []
    for tp in sorted(state.positions.keys() | stopped.keys() | ends.keys()):
        last = state.offset_map(tp).last
        end = ends.get(tp) or told.get(tp)
        begins = 0 if end is None else max(end.log_start_offset, 0)
        rows.append(
            PartitionStatus(
                tp,
                state.positions.get(tp) or Position(begins, "", ""),
                0 if last is None else last.target_end,
                end,
                stopped.get(tp, ""),
            )
        )
    return rows


async def source_ends(
    source: Cluster, state: MirrorState, config: MirrorConfig
) -> dict[TopicPartition, SourceEnd]:
    """Where each partition ends in the source now that is mirrored, or is to be."""
    await source.refresh(None)
    known = {t.name: len(t.partitions) for t in source.cache.topics.values()}
    every = {
        TopicPartition(name, p)
        for name in mirrored_topics(known, config.topics)
        for p in range(known[name])
    }
    every |= {tp for tp in state.positions if tp.partition < known.get(tp.topic, 0)}
    wanted = sorted(every)

    async def one(tp: TopicPartition) -> SourceEnd:
        end = await list_one_offset(source, tp, LATEST, READ_COMMITTED)
        first = await list_one_offset(source, tp, EARLIEST, READ_UNCOMMITTED)
        return SourceEnd(end.offset, first.offset)

    answers = await asyncio.gather(*(one(tp) for tp in wanted), return_exceptions=True)
    return {tp: end for tp, end in zip(wanted, answers, strict=True) if isinstance(end, SourceEnd)}
