"""The compacted topic with the minutes of an audit: one JSON record per topic and minute."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from headwater.client.admin.client import Admin
from headwater.client.producer import Producer
from headwater.client.values import NewTopic
from headwater.errors import ErrorCode, KafkaError
from headwater_tier.audit.minutes import MinuteRow

REPORT_TOPIC = "audit-minutes"
"""Where the console looks, unless it is given another."""
CONFIGS = {"cleanup.policy": "compact", "headwater.value.format": "json"}


def document(row: MinuteRow) -> dict[str, Any]:
    """A minute as JSON: in the topic, and as the command prints it."""
    minute = datetime.fromtimestamp(row.minute_ms / 1000, UTC).isoformat(timespec="seconds")
    return {
        "topic": row.topic,
        "minute": minute,
        "produced": row.produced,
        "places": dict(row.counts),
        "is_closed": row.is_closed,
        "differing": row.differing,
    }


def create_report_topic(admin: Admin, name: str) -> None:
    """Create it where it is absent."""
    try:
        admin.create_topics([NewTopic(name, 1, -1, CONFIGS)])
    except KafkaError as error:
        if error.code is ErrorCode.TOPIC_ALREADY_EXISTS:
            return
        if error.code is not ErrorCode.INVALID_CONFIG:
            raise
        # Apache Kafka knows no headwater.value.format.
        admin.create_topics([NewTopic(name, 1, -1, {"cleanup.policy": "compact"})])


class ReportTopic:
    """Writes the minutes that changed."""

    def __init__(self, producer: Producer, name: str) -> None:
        self._producer = producer
        self._name = name
        self._written: dict[tuple[str, int], MinuteRow] = {}

    def write(self, rows: Iterable[MinuteRow]) -> int:
        """How many were new or changed; they are acknowledged."""
        changed = [row for row in rows if self._written.get((row.topic, row.minute_ms)) != row]
        futures = []
        for row in changed:
            key = json.dumps([row.topic, row.minute_ms])
            futures.append(self._producer.send(self._name, json.dumps(document(row)), key=key))
        for row, future in zip(changed, futures, strict=True):
            future.result()
            self._written[row.topic, row.minute_ms] = row
        return len(changed)
