"""Finds a topic's log table: under the topic's config, an option, or the brokers' config."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.client.admin.client import Admin
from headwater.errors import UsageError
from headwater_tier.plan import TableLocation
from headwater_tier.table_names import table_uri

TOPIC_URI_KEY = "headwater.table.uri"
BROKER_URI_KEY = "headwater.tables.uri"


def locate(
    admin: Admin,
    topic: str,
    *,
    tables_uri: str | None = None,
    storage_options: Sequence[tuple[str, str]] = (),
) -> TableLocation:
    """The location of a topic's table. Raises UsageError when no config or option has a base."""
    described = admin.describe_topics([topic], patient=False)[topic]
    configured = admin.describe_configs("topic", topic, patient=False).get(TOPIC_URI_KEY)
    base = (configured.value if configured else None) or tables_uri
    if not base:
        broker = next((p.leader for p in described.partitions if p.leader >= 0), -1)
        entry = admin.describe_configs("broker", str(broker)).get(BROKER_URI_KEY)
        base = entry.value if entry else None
    if not base:
        raise UsageError(
            f"no config says where the table of topic {topic} is: set the topic's config "
            f"{TOPIC_URI_KEY}, the brokers' config {BROKER_URI_KEY}, or give --tables-uri"
        )
    uri = table_uri(base, topic, described.topic_id)
    return TableLocation(uri, topic, described.topic_id, tuple(storage_options))
