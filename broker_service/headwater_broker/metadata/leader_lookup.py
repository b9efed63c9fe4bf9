"""Looks up a partition's leader in ZooKeeper, where the controller stores it."""

from __future__ import annotations

import logging

from headwater.ports.metadata_store import MetadataStore, NoNodeError, StoreError
from headwater_broker.metadata import znodes
from headwater_broker.metadata.timed_read import read_in_time

logger = logging.getLogger(__name__)


class LeaderLookup:
    """Reads a partition's state through this broker's own session.

    An expired session reads nothing. A broker loses a leadership only with its session, or by a
    LeaderAndIsr that is on its way already. So the answer is as certain as it can be without a
    lease.
    """

    def __init__(self, store: MetadataStore, broker_id: int) -> None:
        self._store = store
        self._broker_id = broker_id

    async def is_leader(self, topic: str, partition: int, leader_epoch: int) -> bool:
        """Whether this broker leads in that leader epoch; False also if the store cannot tell."""
        path = znodes.state_path(topic, partition)
        try:
            node = await read_in_time(self._store, path)
        except NoNodeError:
            return False
        except (StoreError, TimeoutError) as e:
            logger.info("%s: the leader cannot be read: %r", path, e)
            return False
        record = znodes.PartitionRecord.decode(path, node.data)
        return (record.leader, record.leader_epoch) == (self._broker_id, leader_epoch)
