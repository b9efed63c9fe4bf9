"""Who leads a partition, asked where it is decided: in the metadata store."""

from __future__ import annotations

import asyncio
import logging

from headwater.ports.metadata_store import MetadataStore, NoNodeError, StoreError
from headwater_broker.metadata import znodes

ANSWER_WITHIN_S = 5.0
"""A store that is away holds on to what it is asked; a client waits 30 s by default."""

logger = logging.getLogger(__name__)


class LeaderLookup:
    """Looks at a partition's state as this broker's own session sees it.

    A session that expired sees nothing, and a broker loses what it leads only with its session or
    by an order that is already on its way, so this is as sure as one can be without a lease.
    """

    def __init__(self, store: MetadataStore, broker_id: int) -> None:
        self._store = store
        self._broker_id = broker_id

    async def is_leader(self, topic: str, partition: int, leader_epoch: int) -> bool:
        """Whether this broker leads with that epoch; False also when nobody can tell."""
        path = znodes.state_path(topic, partition)
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                node = await self._store.get(path)
        except NoNodeError:
            return False
        except (StoreError, TimeoutError) as e:
            logger.info("%s: who leads it cannot be told: %r", path, e)
            return False
        record = znodes.PartitionRecord.decode(path, node.data)
        return (record.leader, record.leader_epoch) == (self._broker_id, leader_epoch)
