"""The place of a topic's log table, asked of the brokers with the login of whoever looks."""

from __future__ import annotations

from typing import Any

from headwater.errors import ErrorCode, KafkaError, UsageError
from headwater_tier.table_location import BROKER_URI_KEY, TOPIC_URI_KEY
from headwater_tier.table_names import TableLocation, table_uri

DENIED = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
"""DescribeConfigs is not allowed, of a topic or of the brokers."""


async def locate_table(admin: Any, topic: str) -> TableLocation:
    """The location under the topic's config, else the brokers'. Raises UsageError without one."""
    described = (await admin.describe_topics([topic], patient=False))[topic]
    base = await _config(admin, "topic", topic, TOPIC_URI_KEY)
    leader = next((p.leader for p in described.partitions if p.leader >= 0), None)
    if not base and leader is not None:
        base = await _config(admin, "broker", str(leader), BROKER_URI_KEY)
    if not base:
        raise UsageError(
            f"topic {topic} has no table that is known here: the brokers' config {BROKER_URI_KEY}"
            f" or the topic's {TOPIC_URI_KEY} names the folder, which needs DescribeConfigs"
        )
    uri = table_uri(base, topic, described.topic_id)
    return TableLocation(uri, topic, described.topic_id)


async def _config(admin: Any, kind: str, name: str, key: str) -> str | None:
    try:
        entry = (await admin.describe_configs(kind, name)).get(key)
    except KafkaError as error:
        if error.code not in DENIED:
            raise
        return None
    return None if entry is None else entry.value
