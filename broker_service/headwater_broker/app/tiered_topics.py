"""The places of the Delta tables of tiered topics."""

from __future__ import annotations

from uuid import UUID

from headwater.ids import id_text
from headwater.ports.remote_log import TieredTopic
from headwater_broker.app.config import NodeConfig
from headwater_broker.metadata.cache import MetadataCache

TABLE_URI = "headwater.table.uri"
"""Topic config: the folder of the topic's table, instead of headwater.tables.uri."""


class TieredTopics:
    """Locates tables by the topic's config, or this broker's."""

    def __init__(self, config: NodeConfig, view: MetadataCache) -> None:
        self._base_uri = config.tables_uri
        self._storage_options = config.table_options
        self._view = view

    def locate(self, topic: str, topic_id: UUID) -> TieredTopic:
        """The table of a topic: `<base>/<topic>-<id as Kafka writes it>`."""
        known = self._view.topics.get(topic)
        base = known.configs.get(TABLE_URI, "") if known else ""
        base = base or self._base_uri
        return TieredTopic(
            topic=topic,
            topic_id=topic_id,
            table_uri=f"{base.rstrip('/')}/{topic}-{id_text(topic_id)}",
            storage_options=self._storage_options,
        )
