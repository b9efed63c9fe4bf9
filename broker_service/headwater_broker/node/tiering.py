"""What the tables hold, as the broker learned it from Delta itself (never from the tierer)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from uuid import UUID

from headwater.ports.remote_log import RemoteLog, RemoteLogError, TieredTopic
from headwater_broker.cluster.view import ClusterView
from headwater_broker.log.partition_log import PartitionLog
from headwater_broker.replication.replica_manager import ReplicaManager

logger = logging.getLogger(__name__)


class TieredEnds:
    """The end of each tiered partition, refreshed from checked snapshots.

    A topic is asked about when tiering is on for it and this broker hosts some of it; also when
    a tierer hints that its table moved.
    """

    def __init__(
        self,
        remote_log: RemoteLog,
        view: Callable[[], ClusterView],
        replicas: Callable[[], ReplicaManager],
        where: Callable[[str, UUID], TieredTopic],
    ) -> None:
        self._remote_log = remote_log
        self._view = view
        self._replicas = replicas
        self._where = where
        self._ends: dict[tuple[UUID, int], int] = {}
        self._failing: set[str] = set()

    def end(self, topic: str, partition: int) -> int | None:
        """The offset after the last tiered one; None while it is not known."""
        known = self._view().topics.get(topic)
        return None if known is None else self._ends.get((known.topic_id, partition))

    def end_of(self, log: PartitionLog) -> int | None:
        """As `end`, of a log: retention drops nothing above it."""
        return self._ends.get((log.topic_id, log.partition))

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
        except RemoteLogError as error:
            if name not in self._failing:
                self._failing.add(name)
                logger.warning("cannot read the table of %s: %s", name, error)
            return False
        self._failing.discard(name)
        for partition, tiered in ranges.items():
            self._ends[(topic_id, partition)] = tiered.end_offset
        return True
