"""Look-ups of the topics that a sink writes. Imports no pyspark."""

from __future__ import annotations

from headwater.client.blocking.record_client import RecordClient
from headwater.errors import ErrorCode, KafkaError, UsageError


def partition_count(client: RecordClient, topic: str, bootstrap_servers: str) -> int:
    """The number of a topic's partitions. Raises UsageError for a topic that does not exist."""
    try:
        found = client.metadata([topic])[topic]
    except KafkaError as e:
        if e.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise UsageError(
                f"topic {topic} does not exist at {bootstrap_servers}: create it with"
                f" `headwater topics create {topic}`"
            ) from e
        raise
    return len(found.partitions)
