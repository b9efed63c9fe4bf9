"""Finds a topic's log table: under the topic's config, an option, or the brokers' config."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from headwater.client.admin.client import Admin
from headwater.client.blocking.broker_metadata import BrokerMetadata, Topic
from headwater.errors import HeadwaterError, UsageError
from headwater_tier.table_names import TableLocation, table_uri

ENABLE_KEY = "remote.storage.enable"
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


class TableUnknownError(HeadwaterError):
    """No config or option names the base folder of the topic's log table."""


def locate_table(
    brokers: BrokerMetadata,
    topic: Topic,
    *,
    tables_uri: str | None = None,
    storage_options: tuple[tuple[str, str], ...] = (),
) -> TableLocation:
    """The topic's table: under the topic's config, the option, or the brokers' config."""
    base = brokers.topic_configs(topic.name, (TOPIC_URI_KEY,)).get(TOPIC_URI_KEY)
    base = base or tables_uri
    if not base:
        leader = next((broker for broker in topic.leaders if broker >= 0), -1)
        base = brokers.broker_configs(leader, (BROKER_URI_KEY,)).get(BROKER_URI_KEY)
    if not base:
        raise TableUnknownError(
            f"no config says where the table of topic {topic.name} is: set the topic's config"
            f" {TOPIC_URI_KEY}, the brokers' config {BROKER_URI_KEY}, or the option"
            f" {BROKER_URI_KEY}"
        )
    return at_uri(table_uri(base, topic.name, topic.uuid), topic.name, topic.uuid, storage_options)


def at_uri(
    uri: str, topic: str, topic_id: UUID, storage_options: tuple[tuple[str, str], ...]
) -> TableLocation:
    """The location of a table with this full URI."""
    return TableLocation(
        uri=uri, topic=topic, topic_id=topic_id, storage_options=tuple(storage_options)
    )
