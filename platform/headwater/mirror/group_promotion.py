"""Translates the groups' offsets from outside of a running mirror: at promotion, or when asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from headwater.client.cluster import Cluster
from headwater.client.values import OffsetAndMetadata, TopicPartition
from headwater.errors import HeadwaterError
from headwater.mirror.config import MirrorConfig
from headwater.mirror.core.group_offset_writes import GroupPlan
from headwater.mirror.core.offset_translation import translated
from headwater.mirror.core.selection import bucket_of
from headwater.mirror.core.state import (
    MirrorState,
    StateRecord,
    group_record,
    positions_topic,
)
from headwater.mirror.cycle_detection import read_reverse
from headwater.mirror.group_sync import GroupSync
from headwater.mirror.state_reader import READ_UNCOMMITTED, read_state
from headwater.mirror.state_writer import write_state
from headwater.mirror.status import REACH_MS, bucket_count, connected

Say = Callable[[str], object]
Offsets = dict[TopicPartition, OffsetAndMetadata]


async def sync_groups(config: MirrorConfig, say: Say) -> int:
    """One round of all groups; how many. A mirror that runs is fenced for a moment, and goes on.
    Raises KafkaError, UsageError."""
    async with connected(config.target) as target:
        buckets = await bucket_count(target, config)
        topic = positions_topic(config.mirror_id)
        state = await read_state(target, topic, range(buckets), isolation=READ_UNCOMMITTED)
        return await sync_known_groups(target, config, state, buckets, say)


async def sync_known_groups(
    target: Cluster,
    config: MirrorConfig,
    state: MirrorState,
    buckets: int,
    say: Say,
    *,
    has_source: bool = True,
) -> int:
    """Translate with the maps of `state`; how many groups. The offsets are the source's now if it
    can be read, else, or without `has_source`, those of the last round."""
    offsets: dict[str, Offsets] = {
        group: {tp: OffsetAndMetadata(at.source, at.metadata) for tp, at in rows.items()}
        for group, rows in state.groups.items()
    }
    reverse = MirrorState()
    if has_source:
        try:
            reverse = await _read_source(config, target.cache.cluster_id, offsets)
        except (HeadwaterError, OSError) as error:
            say(f"the groups' offsets are those of the last round: {error}")
    else:
        say("the groups' offsets are those of the last round, as the source cannot be read")
    writer = GroupSync(target, target, config)
    plans = {
        group: await _plan(writer, group, rows, state, reverse)
        for group, rows in sorted(offsets.items())
    }
    await _store(target, config, state, buckets, plans.items())
    for group, made in plans.items():
        if made.writes:
            await writer.write(group, made.writes)
    say(f"translated the offsets of {len(plans)} groups")
    return len(plans)


async def _read_source(
    config: MirrorConfig, target_id: str | None, offsets: dict[str, Offsets]
) -> MirrorState:
    """Update the groups' offsets; what the mirror in the other direction stored."""
    async with connected(config.source, reach_ms=REACH_MS) as source:
        reverse = await read_reverse(source, target_id)
        reader = GroupSync(source, source, config)
        offsets |= {g: await reader.source_offsets(g) for g in await reader.groups()}
    return reverse


async def _plan(
    writer: GroupSync, group: str, offsets: Offsets, state: MirrorState, reverse: MirrorState
) -> GroupPlan:
    def translate(tp: TopicPartition, offset: int) -> int | None:
        orphans = state.orphans.get(tp)
        skipped = reverse.offset_map(tp) if orphans and tp in reverse.positions else None
        if orphans and skipped is not None:
            skipped.cut(orphans.end)
        end = None if orphans is None else orphans.end
        position = state.positions[tp].next_offset
        return translated(offset, position, state.offset_map(tp), skipped, end)

    known = state.groups.get(group, {})
    last_era = max((at.era for at in known.values()), default=0)
    era = reverse.promoted_ms or last_era
    mine = {tp: at for tp, at in offsets.items() if tp in state.positions}
    return await writer.plan(group, mine, known, translate, era)


async def _store(
    target: Cluster,
    config: MirrorConfig,
    state: MirrorState,
    buckets: int,
    plans: Iterable[tuple[str, GroupPlan]],
) -> None:
    """Store what is to be written, as the mirror does: each bucket has its partitions."""
    rows: dict[int, list[StateRecord]] = {}
    for group, made in plans:
        if made.known == state.groups.get(group, {}):
            continue
        for bucket in {bucket_of(tp, buckets) for tp in made.known}:
            mine = {tp: at for tp, at in made.known.items() if bucket_of(tp, buckets) == bucket}
            rows.setdefault(bucket, []).append(group_record(group, mine))
    for bucket, records in sorted(rows.items()):
        await write_state(target, config, bucket, records)
