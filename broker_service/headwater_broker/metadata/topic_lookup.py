"""Looks up topics in ZooKeeper, where the controller stores them."""

from __future__ import annotations

import logging
from uuid import UUID

from headwater.ports.metadata_store import MetadataStore, NoNodeError, StoreError
from headwater_broker.metadata import znodes
from headwater_broker.metadata.timed_read import read_in_time

logger = logging.getLogger(__name__)


class TopicLookup:
    """Reads topics through this broker's own session.

    The metadata cache of a broker that has just started may lag behind: a topic that it does not
    know may be a new one.
    """

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    async def is_deleted(self, topic: str, topic_id: UUID) -> bool:
        """True when no topic of this name has this id; False also if the store cannot tell. The
        zero id stands for any."""
        path = znodes.topic_path(topic)
        try:
            node = await read_in_time(self._store, path)
        except NoNodeError:
            return True
        except (StoreError, TimeoutError) as e:
            logger.info("%s cannot be read: %r", path, e)
            return False
        found = znodes.TopicAssignment.decode(topic, node.data).topic_id
        return topic_id.int != 0 and found != topic_id
