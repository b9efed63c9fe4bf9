"""An operator's changes: a gap is passed, a topic begins anew, a promoted mirror runs again."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.client.cluster import Cluster
from headwater.client.values import TopicPartition
from headwater.errors import UsageError
from headwater.mirror.config import MirrorConfig
from headwater.mirror.core.selection import bucket_of
from headwater.mirror.core.state import (
    MirrorState,
    StateRecord,
    chunk_record,
    position_record,
    positions_topic,
    promoted_record,
)
from headwater.mirror.state_reader import read_state
from headwater.mirror.state_writer import write_state
from headwater.mirror.status import bucket_count, connected


@dataclass(frozen=True, slots=True)
class Skip:
    """A position that was moved."""

    tp: TopicPartition
    before: int
    after: int


async def skip(config: MirrorConfig, tp: TopicPartition, to: int) -> Skip:
    """Go on at source offset `to`. What was mirrored from there on is no longer known to be the
    source's. Raises KafkaError, UsageError."""
    async with connected(config.target) as target:
        state, buckets = await _state(target, config)
        position = state.positions.get(tp)
        if position is None:
            raise UsageError(
                f"mirror {config.mirror_id} has no position of {tp.topic}:{tp.partition}: see "
                "`headwater mirror positions`"
            )
        offset_map = state.offset_map(tp)
        changed, gone = offset_map.cut(to)
        rows = [position_record(tp, position._replace(next_offset=to, leader_epoch=-1))]
        rows += [chunk_record(tp, c, offset_map.chunk(c)) for c in sorted(changed)]
        rows += [chunk_record(tp, c, None) for c in sorted(gone)]
        await write_state(target, config, bucket_of(tp, buckets), rows)
    return Skip(tp, position.next_offset, to)


async def forget(config: MirrorConfig, topic: str) -> list[TopicPartition]:
    """Begin a topic anew, with its partitions' first records; which partitions were known. Raises
    KafkaError, UsageError."""
    async with connected(config.target) as target:
        state, buckets = await _state(target, config)
        known = sorted(tp for tp in state.positions if tp.topic == topic)
        if not known:
            raise UsageError(f"mirror {config.mirror_id} has no position of a topic {topic!r}")
        by_bucket: dict[int, list[StateRecord]] = {}
        for tp in known:
            rows = by_bucket.setdefault(bucket_of(tp, buckets), [])
            rows.append(position_record(tp, None))
            rows += [chunk_record(tp, chunk, None) for chunk in state.chunks.get(tp, {})]
        for bucket, rows in by_bucket.items():
            await write_state(target, config, bucket, rows)
    return known


async def resume(config: MirrorConfig) -> int | None:
    """Let a promoted mirror run again; when it was promoted. Raises KafkaError, UsageError."""
    async with connected(config.target) as target:
        state, buckets = await _state(target, config)
        if state.promoted_ms is None:
            return None
        for bucket in range(buckets):
            await write_state(target, config, bucket, [promoted_record(None)])
    return state.promoted_ms


async def _state(target: Cluster, config: MirrorConfig) -> tuple[MirrorState, int]:
    buckets = await bucket_count(target, config)
    topic = positions_topic(config.mirror_id)
    return await read_state(target, topic, range(buckets)), buckets
