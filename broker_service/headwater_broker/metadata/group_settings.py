"""The settings of one group: its group configs over the broker's (KIP-848, KIP-932, KIP-1240)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """What `kafka-configs.sh --entity-type groups` may set, with Kafka's names in the comments."""

    consumer_session_timeout_ms: int = 45_000  # consumer.session.timeout.ms
    consumer_heartbeat_interval_ms: int | None = None  # consumer.heartbeat.interval.ms
    """None: not configured; the coordinator chooses."""
    consumer_assignment_interval_ms: int = 1_000  # consumer.assignment.interval.ms
    share_session_timeout_ms: int = 45_000  # share.session.timeout.ms
    share_heartbeat_interval_ms: int | None = None  # share.heartbeat.interval.ms
    share_assignment_interval_ms: int = 1_000  # share.assignment.interval.ms
    share_record_lock_duration_ms: int = 30_000  # share.record.lock.duration.ms
    share_delivery_count_limit: int = 5  # share.delivery.count.limit
    share_partition_max_record_locks: int = 2_000  # share.partition.max.record.locks
    share_auto_offset_reset: str = "latest"  # share.auto.offset.reset
    """"latest", "earliest" or "by_duration:<ISO 8601 duration>"."""
    share_isolation_level: str = "read_uncommitted"  # share.isolation.level
    share_renew_acknowledge_enable: bool = True  # share.renew.acknowledge.enable


GroupSettingsOf = Callable[[str], GroupSettings]
"""(group id) -> its settings as they are now."""
