"""End offsets of partitions: of those led here by their replicas, of others by their leaders."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headwater.ports.network import Connect
from headwater_broker.metadata.cache import MetadataCache
from headwater_broker.replica.replica_manager import ReplicaManager
from headwater_broker.telemetry.leader_end_offsets import LeaderEndOffsets

TopicPartition = tuple[str, int]
LEADER_TIMEOUT_S = 5.0
"""A tool waits for its answer, unlike a scraper."""


class EndOffsets:
    """High watermarks, for tools that ask how far a group is behind."""

    def __init__(
        self, view: MetadataCache, replicas: ReplicaManager, connect: Connect, listener: str
    ) -> None:
        self._view = view
        self._replicas = replicas
        self._connect = connect
        self._listener = listener

    async def of(self, wanted: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Those whose leader answers."""
        found: dict[TopicPartition, int] = {}
        elsewhere: list[TopicPartition] = []
        for key in wanted:
            hosted = self._replicas.partitions.get(key)
            if hosted is not None and hosted.is_leader:
                found[key] = hosted.high_watermark
            else:
                elsewhere.append(key)
        if elsewhere:
            asked = LeaderEndOffsets(self._view, self._connect, self._listener, LEADER_TIMEOUT_S)
            await asked.refresh(elsewhere)
            for key in elsewhere:
                end = asked.get(*key)
                if end is not None:
                    found[key] = end
        return found
