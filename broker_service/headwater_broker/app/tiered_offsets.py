"""Tiered offsets: the range of offsets that each topic's Delta table holds, read from Delta itself.

The tierer only hints that a table has moved; what may be deleted locally follows from the table.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from uuid import UUID

from headwater.ports.remote_log import RemoteLog, RemoteLogError, TieredRange, TieredTopic
from headwater_broker.log.unified_log import UnifiedLog
from headwater_broker.replica.partition import Partition
from headwater_broker.replica.replica_manager import ReplicaManager

logger = logging.getLogger(__name__)

LEADER_RETRY_S = 1.0
"""How often a leader that waits for the end of its table asks again."""


class TieredRanges:
    """The ranges as last read from checked snapshots of the tables."""

    def __init__(
        self, remote_log: RemoteLog, tiered_topic: Callable[[str, UUID], TieredTopic]
    ) -> None:
        """`tiered_topic(topic, topic id)`: where the table is."""
        self._remote_log = remote_log
        self._tiered_topic = tiered_topic
        self._ranges: dict[tuple[UUID, int], TieredRange] = {}
        self._failing: set[UUID] = set()

    def end(self, topic_id: UUID, partition: int) -> int | None:
        """The offset after the last tiered one; None while it is not known."""
        found = self._ranges.get((topic_id, partition))
        return None if found is None else found.end_offset

    def end_for_retention(self, log: UnifiedLog) -> int | None:
        """As `end`, for retention, which deletes nothing above it: None also while the table cannot
        be read or fails its checks, as nothing local may be deleted then."""
        found = self._ranges.get((log.topic_id, log.partition))
        return None if found is None or log.topic_id in self._failing else found.end_offset

    async def read(self, name: str, topic_id: UUID) -> dict[int, TieredRange] | None:
        """Read one table's ranges by partition; None (and one log line per outage) on failure."""
        try:
            ranges = await self._remote_log.ranges(self._tiered_topic(name, topic_id))
            self._check_nothing_lost(name, topic_id, ranges)
        except RemoteLogError as error:
            if topic_id not in self._failing:
                self._failing.add(topic_id)
                logger.warning("cannot read the table of %s, local segments stay: %s", name, error)
            return None
        if topic_id in self._failing:
            self._failing.discard(topic_id)
            logger.info("the table of %s can be read again", name)
        for number, tiered in ranges.items():
            self._ranges[(topic_id, number)] = tiered
        return ranges

    def _check_nothing_lost(
        self, name: str, topic_id: UUID, ranges: dict[int, TieredRange]
    ) -> None:
        """A table that existed and is gone is a fault; one that does not exist yet is none."""
        lost = [p for owner, p in self._ranges if owner == topic_id and p not in ranges]
        if lost:
            uri = self._tiered_topic(name, topic_id).table_uri
            raise RemoteLogError(f"{uri} held partition {lost[0]}, and now it does not")


class TieredOffsets:
    """Refreshes the ranges of hosted topics with tiering on, and applies them to leaders here.

    A table is read by a timer, when a tierer hints that it moved, and when this broker becomes
    leader of one of its partitions.
    """

    def __init__(self, ranges: TieredRanges, replicas: ReplicaManager) -> None:
        self._ranges = ranges
        self._replicas = replicas
        self._reading: dict[UUID, asyncio.Task[None]] = {}

    async def refresh(self) -> None:
        """Read the table of every hosted topic that has tiering on."""
        topics = {
            (partition.topic, partition.topic_id)
            for partition in list(self._replicas.partitions.values())
            if partition.log.config.remote_storage
        }
        for name, topic_id in sorted(topics):
            await self.refresh_topic(name, topic_id)

    async def refresh_topic(self, name: str, topic_id: UUID) -> bool:
        """Read one table; False when it cannot be read."""
        ranges = await self._ranges.read(name, topic_id)
        if ranges is None:
            return False
        for number, tiered in ranges.items():
            partition = self._replicas.by_id.get((topic_id, number))
            if partition is not None and partition.is_leader:
                _apply(partition, tiered)
        for partition in self._waiting_leaders(topic_id):
            partition.set_awaits_tiered_end(False)
        return True

    def leadership_changed(self, partition: Partition) -> None:
        """A listener of `ReplicaManager.leadership_listeners`: a new leader reads the table, again
        and again until it can be read."""
        topic_id = partition.topic_id
        if not partition.is_leader or not partition.log.config.remote_storage:
            return
        if topic_id not in self._reading:
            work = self._read_for_leaders(partition.topic, topic_id)
            task = asyncio.get_running_loop().create_task(work)
            self._reading[topic_id] = task
            task.add_done_callback(lambda _: self._reading.pop(topic_id, None))

    async def close(self) -> None:
        """Read no more."""
        tasks = list(self._reading.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _read_for_leaders(self, name: str, topic_id: UUID) -> None:
        while not await self.refresh_topic(name, topic_id):
            if not self._waiting_leaders(topic_id):
                return  # the timer reads it again
            await asyncio.sleep(LEADER_RETRY_S)

    def _waiting_leaders(self, topic_id: UUID) -> list[Partition]:
        hosted = self._replicas.by_id.items()
        return [p for (owner, _), p in hosted if owner == topic_id and p.awaits_tiered_end]


def _apply(partition: Partition, tiered: TieredRange) -> None:
    log = partition.log
    if log.log_end_offset < tiered.end_offset:
        logger.error(
            "%r: its log ends at %d, its table at %d: starts again there, as offsets in the table "
            "are never assigned twice",
            partition, log.log_end_offset, tiered.end_offset,
        )  # fmt: skip
        partition.restart_at(tiered.end_offset, tiered.start_offset)
    if log.log_start_offset < tiered.start_offset:
        log.delete_records_before(tiered.start_offset)
