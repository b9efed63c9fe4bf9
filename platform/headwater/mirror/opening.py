"""The opening of a partition in a bucket: its stored position, or a first one; and its orphans.

After a failover the former source may hold records that were never mirrored: its lost tail. The
mirror back to it copies them to `T.orphans` there, before it writes anything to `T`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from headwater.client.admin.topics import TopicCalls, list_one_offset
from headwater.client.cluster import Cluster
from headwater.client.errors import TopicAlreadyExistsError
from headwater.client.values import NewTopic, TopicPartition
from headwater.errors import UsageError
from headwater.mirror.core.batches import pieces_of
from headwater.mirror.core.partition_copy import PartitionCopy
from headwater.mirror.core.selection import ORPHANS_SUFFIX
from headwater.mirror.core.state import MirrorState, Orphans, Position, StateRecord, orphans_record
from headwater.mirror.parts import MirrorParts
from headwater.mirror.source_reader import EARLIEST, LATEST, READ_COMMITTED
from headwater.mirror.state_reader import READ_UNCOMMITTED, fetch_batches
from headwater.mirror.target_producer import TargetProducer
from headwater.mirror.topic_sync import MirroredTopic

IN_FLIGHT_BYTES = 4 << 20
OPEN_TRANSACTIONS_S = 90.0
"""Longer than the default of transaction.timeout.ms."""
log = logging.getLogger(__name__)


class PartitionOpener:
    """Opens the partitions of one bucket."""

    def __init__(
        self,
        parts: MirrorParts,
        producer: TargetProducer,
        store: Callable[[list[StateRecord]], object],
    ) -> None:
        """`store` adds state records to the transaction that the bucket commits next."""
        self._parts = parts
        self._producer = producer
        self._store = store

    async def open(
        self, tp: TopicPartition, topic: MirroredTopic, state: MirrorState
    ) -> PartitionCopy:
        """The partition with its stored position, or where it begins. Raises KafkaError."""
        reverse = self._parts.reverse
        back = reverse.positions.get(tp)
        # A topic that was created again has none of the records that came from it.
        has_records = back is not None and back.source_topic_id == topic.target_id
        skipped = reverse.offset_map(tp) if has_records else None
        stored = state.positions.get(tp)
        position = stored or await self._first_position(tp, topic)
        if tp in reverse.orphans:  # they are at the other side's end of this log already
            end = reverse.orphans[tp].end
            position = position._replace(next_offset=max(position.next_offset, end))
        copy = PartitionCopy(tp, position, state.offset_map(tp), skipped)
        if stored is None:
            copy.stored = -1
            if skipped is None:
                await self._check_empty(copy)
        elif stored.target_topic_id != topic.target_id:
            copy.stop(created_again(tp.topic, "target"))
        elif stored.source_topic_id != topic.source_id:
            copy.stop(created_again(tp.topic, "source"))
        if skipped is not None and not copy.stopped:
            orphans = await self._orphans(tp, reverse, state)
            skipped.cut(orphans.end)  # mirrored records that their own cluster has lost come back
        return copy

    async def _first_position(self, tp: TopicPartition, topic: MirroredTopic) -> Position:
        is_latest = self._parts.config.starts_latest and not self._came_later(tp, topic)
        when, level = (LATEST, READ_COMMITTED) if is_latest else (EARLIEST, READ_UNCOMMITTED)
        start = await offset_at(self._parts.source, tp, when, level)
        return Position(start, topic.source_id, topic.target_id)

    def _came_later(self, tp: TopicPartition, topic: MirroredTopic) -> bool:
        """True for a partition that was added to what is mirrored: whatever
        `source.auto.offset.reset` says, the records before it was found are not skipped."""
        counts = self._parts.first_counts
        is_added = counts is not None and tp.partition >= counts.get(tp.topic, 0)
        return is_added or (tp.topic, topic.source_id) in self._parts.mirrored_before

    async def _check_empty(self, copy: PartitionCopy) -> None:
        """A topic that was never mirrored must be empty in the target, or mirroring it again would
        double its records."""
        if self._parts.config.appends:
            return
        end = await offset_at(self._parts.target, copy.tp, LATEST, READ_UNCOMMITTED)
        if end > 0:
            copy.stop(
                f"the target's {copy.tp.topic}-{copy.tp.partition} has records up to offset {end} "
                "that this mirror did not write: delete the topic there, or set "
                "target.existing=append"
            )

    async def _orphans(
        self, tp: TopicPartition, reverse: MirrorState, state: MirrorState
    ) -> Orphans:
        """Copy the target's lost tail to its topic of orphans, once per failover."""
        promoted_ms = reverse.promoted_ms or 0
        known = state.orphans.get(tp)
        if known is not None and known.promoted_ms == promoted_ms:
            return known
        start = reverse.positions[tp].next_offset
        end = await self._stable_end(tp)
        place = TopicPartition(tp.topic + ORPHANS_SUFFIX, tp.partition)
        count = await self._copy_tail(tp, start, end, place) if start < end else 0
        made = Orphans(end, promoted_ms, count)
        self._store([orphans_record(tp, made)])
        state.orphans[tp] = made
        return made

    async def _stable_end(self, tp: TopicPartition) -> int:
        """The end of the lost tail, once no transaction is open in it: the coordinator ends those
        of the producers that went with the site."""
        target = self._parts.target
        deadline = target.clock.monotonic() + OPEN_TRANSACTIONS_S
        while True:
            end = await offset_at(target, tp, LATEST, READ_COMMITTED)
            if end == await offset_at(target, tp, LATEST, READ_UNCOMMITTED):
                return end
            if target.clock.monotonic() > deadline:
                log.warning("%s-%d: a transaction is open behind offset %d", *tp, end)
                return end
            await asyncio.sleep(1.0)

    async def _copy_tail(
        self, tp: TopicPartition, start: int, end: int, place: TopicPartition
    ) -> int:
        """Copy what is in the target from `start` to `end`; how many records."""
        target = self._parts.target
        count = 0
        while start < end:
            fetched = await fetch_batches(target, tp, start)
            for piece in pieces_of(fetched.records, start, fetched.aborted):
                if piece.records and piece.next_offset <= end:
                    if not count and place.topic not in target.cache.topics:
                        partitions = len(target.cache.topics[tp.topic].partitions)
                        await self._create_orphans(place.topic, partitions)
                    await self._producer.add_partitions({place})
                    await self._producer.send(await target.leader(*place), {place: piece})
                    await self._producer.wait_for_room(IN_FLIGHT_BYTES)
                    count += piece.records
            start = fetched.next_offset
        await self._producer.wait_for_room(0)
        return count

    async def _create_orphans(self, topic: str, partitions: int) -> None:
        """Retention must not delete what nobody has looked at."""
        row = NewTopic(
            topic, partitions, self._parts.config.replication_factor, {"retention.ms": "-1"}
        )
        try:
            await TopicCalls(self._parts.target).create([row], 30_000, validate_only=False)
        except TopicAlreadyExistsError:
            pass
        await self._parts.target.retrying("create", self._refreshed(topic), topics=(topic,))

    def _refreshed(self, topic: str) -> Callable[[], Awaitable[int]]:
        return lambda: self._parts.target.leader(topic, 0)


async def offset_at(cluster: Cluster, tp: TopicPartition, when: int, level: int) -> int:
    """The first or last offset of a partition, with retries. Raises KafkaError."""

    async def attempt() -> int:
        return (await list_one_offset(cluster, tp, when, level)).offset

    return await cluster.retrying(f"offsets of {tp}", attempt, topics=(tp.topic,))


def created_again(topic: str, side: str) -> str:
    """The reason of a stop: positions and offsets of the former topic mean nothing now."""
    also = "" if side == "target" else "delete it in the target, then "
    return (
        f"topic {topic} was created again in the {side}: {also}`headwater mirror forget {topic}` "
        "begins it anew"
    )


def partition_argument(text: str) -> TopicPartition:
    """`TOPIC:PARTITION`. Raises UsageError."""
    topic, _, index = text.rpartition(":")
    if not topic or not (index.isascii() and index.isdigit()):
        raise UsageError(f"{text!r} is not TOPIC:PARTITION")
    return TopicPartition(topic, int(index))
