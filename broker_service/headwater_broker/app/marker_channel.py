"""Delivery of this broker's transaction markers: to its own writer, or to other brokers.

Implements `coordinator.transaction.marker_sender.MarkerTransport`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

from headwater_broker.app.transaction_channel import TransactionChannel
from headwater_broker.coordinator.transaction.marker_sender import Codes
from headwater_broker.coordinator.transaction.transaction import Partition
from headwater_broker.metadata.cache import MetadataCache
from headwater_broker.replica.marker_writer import MarkerWriter, TransactionMarker

IsDeleted = Callable[[str, UUID], Awaitable[bool]]
"""(topic, topic id) -> True when the metadata store has no such topic."""


async def deleted_for_all(_topic: str, _topic_id: UUID) -> bool:
    """For tests without a metadata store: what the metadata cache lacks is deleted."""
    return True


class MarkerChannel:
    """Partitions led here get their markers without a socket."""

    def __init__(
        self,
        broker_id: int,
        view: MetadataCache,
        writer: MarkerWriter,
        channel: TransactionChannel,
        is_deleted: IsDeleted,
    ) -> None:
        self._broker_id = broker_id
        self._view = view
        self._writer = writer
        self._channel = channel
        self._store_lacks = is_deleted

    def leader(self, partition: Partition, topic_id: UUID) -> int | None:
        """See `MarkerTransport`."""
        known = self._view.topics.get(partition[0])
        if known is None or (  # UUIDs compare slowly
            topic_id is not known.topic_id and topic_id.int not in (0, known.topic_id.int)
        ):
            return None
        state = known.partitions.get(partition[1])
        if state is None:
            return None
        return state.leader_id if state.leader_id in self._view.brokers else None

    async def is_deleted(self, topic: str, topic_id: UUID) -> bool:
        """See `MarkerTransport`. An incomplete or stale view decides nothing."""
        known = self._view.topics.get(topic)
        is_known = known is not None and topic_id.int in (0, known.topic_id.int)
        if is_known or not self._view.is_complete:
            return False
        return await self._store_lacks(topic, topic_id)

    async def write(self, broker_id: int, markers: Sequence[TransactionMarker]) -> Codes:
        """See `MarkerTransport`."""
        if broker_id == self._broker_id:
            return await self._writer.write(markers)
        await asyncio.sleep(0)  # from here on in a task: `first_step`
        return await self._channel.write_markers(broker_id, markers)
