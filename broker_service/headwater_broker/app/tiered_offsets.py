"""What the tables hold, as the broker learned it from Delta itself (never from the tierer)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from uuid import UUID

from headwater.ports.remote_log import RemoteLog, RemoteLogError, TieredRange, TieredTopic
from headwater_broker.log.unified_log import UnifiedLog
from headwater_broker.replica.manager import ReplicaManager
from headwater_broker.replica.partition import Partition

logger = logging.getLogger(__name__)

HELD_RETRY_S = 1.0
"""How often a leader that waits for its table's end asks again."""


class TieredEnds:
    """The range of each tiered partition, refreshed from checked snapshots.

    A topic is asked about when tiering is on for it and this broker hosts some of it; at once
    when a tierer hints that its table moved, and when this broker begins to lead.
    """

    def __init__(
        self,
        remote_log: RemoteLog,
        replicas: Callable[[], ReplicaManager],
        where: Callable[[str, UUID], TieredTopic],
    ) -> None:
        self._remote_log = remote_log
        self._replicas = replicas
        self._where = where
        self._ranges: dict[tuple[UUID, int], TieredRange] = {}
        self._failing: set[UUID] = set()
        self._learning: dict[UUID, asyncio.Task[None]] = {}

    def end(self, topic_id: UUID, partition: int) -> int | None:
        """The offset after the last tiered one; None while it is not known."""
        found = self._ranges.get((topic_id, partition))
        return None if found is None else found.end_offset

    def end_of(self, log: UnifiedLog) -> int | None:
        """As `end`, for retention, which drops nothing above it: None also while the table cannot
        be read or fails its checks, as then nothing local may go."""
        found = self._ranges.get((log.topic_id, log.partition))
        return None if found is None or log.topic_id in self._failing else found.end_offset

    async def refresh(self) -> None:
        """Ask about every hosted topic that has tiering on."""
        topics = {
            (partition.topic, partition.topic_id)
            for partition in list(self._replicas().partitions.values())
            if partition.log.config.remote_storage
        }
        for name, topic_id in sorted(topics):
            await self.refresh_topic(name, topic_id)

    async def refresh_topic(self, name: str, topic_id: UUID) -> bool:
        """Read one table's state; False (and one log line per outage) when it cannot be read."""
        try:
            ranges = await self._remote_log.ranges(self._where(name, topic_id))
            self._check_not_gone(name, topic_id, ranges)
        except RemoteLogError as error:
            if topic_id not in self._failing:
                self._failing.add(topic_id)
                logger.warning("cannot read the table of %s, local segments stay: %s", name, error)
            return False
        if topic_id in self._failing:
            self._failing.discard(topic_id)
            logger.info("the table of %s can be read again", name)
        for number, tiered in ranges.items():
            self._ranges[(topic_id, number)] = tiered
            partition = self._replicas().by_id.get((topic_id, number))
            if partition is not None and partition.is_leader:
                self._follow_table(partition, tiered)
        self._release(topic_id)
        return True

    def led(self, partition: Partition) -> None:
        """A leadership listener: what may be too old is asked again, until it is answered."""
        topic_id = partition.topic_id
        if not partition.is_leader or not partition.log.config.remote_storage:
            return
        if topic_id not in self._learning:
            task = asyncio.get_running_loop().create_task(self._learn(partition.topic, topic_id))
            self._learning[topic_id] = task
            task.add_done_callback(lambda _: self._learning.pop(topic_id, None))

    async def close(self) -> None:
        """Ask no more."""
        tasks = list(self._learning.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _learn(self, name: str, topic_id: UUID) -> None:
        while not await self.refresh_topic(name, topic_id):
            if not self._held(topic_id):
                return  # the timer asks again
            await asyncio.sleep(HELD_RETRY_S)

    def _held(self, topic_id: UUID) -> list[Partition]:
        hosted = self._replicas().by_id.items()
        return [p for (owner, _), p in hosted if owner == topic_id and p.awaits_tiered_end]

    def _release(self, topic_id: UUID) -> None:
        for partition in self._held(topic_id):
            partition.set_awaits_tiered_end(False)

    def _check_not_gone(self, name: str, topic_id: UUID, ranges: dict[int, TieredRange]) -> None:
        """A table that was there and is not any more is a fault; one that is not yet, is none."""
        lost = [p for owner, p in self._ranges if owner == topic_id and p not in ranges]
        if lost:
            uri = self._where(name, topic_id).table_uri
            raise RemoteLogError(f"{uri} held partition {lost[0]}, and now it does not")

    def _follow_table(self, partition: Partition, tiered: TieredRange) -> None:
        """What the table says of a partition that is led here."""
        log = partition.log
        if log.log_end_offset < tiered.end_offset:
            logger.error(
                "%r: its log ends at %d, its table at %d: begins again there, as offsets in the "
                "table are never given out twice",
                partition, log.log_end_offset, tiered.end_offset,
            )  # fmt: skip
            partition.restart_at(tiered.end_offset, tiered.start_offset)
        if log.log_start_offset < tiered.start_offset:
            log.delete_records_before(tiered.start_offset)
