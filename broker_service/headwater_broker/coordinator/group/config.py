"""The settings of group coordinators, with Kafka's names in the comments."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.config.keys import Values

NEW_MEMBER_TIMEOUT_MS = 300_000
"""A member that joins for the first time is kept this long while its JoinGroup waits, as it does
not heartbeat meanwhile."""
EXPIRY_GROUPS_PER_TICK = 200
"""Groups that one tick searches for expired offsets."""


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """Settings of the group coordinators of a broker."""

    min_session_timeout_ms: int = 6_000  # group.min.session.timeout.ms
    max_session_timeout_ms: int = 1_800_000  # group.max.session.timeout.ms
    initial_rebalance_delay_ms: int = 3_000  # group.initial.rebalance.delay.ms
    max_size: int = 2**31 - 1  # group.max.size
    share_max_size: int = 200  # group.share.max.size
    share_initialize_retry_ms: int = 30_000  # group.share.initialize.retry.interval.ms
    consumer_max_size: int = 2**31 - 1  # group.consumer.max.size
    regex_refresh_ms: int = 600_000  # group.consumer.regex.refresh.interval.ms
    migration_policy: str = "bidirectional"  # group.consumer.migration.policy
    batch_max_bytes: int = 1_048_588  # message.max.bytes
    offset_metadata_max_bytes: int = 4_096  # offset.metadata.max.bytes
    offsets_retention_ms: int = 10_080 * 60_000  # offsets.retention.minutes
    offsets_check_interval_ms: int = 600_000  # offsets.retention.check.interval.ms

    @classmethod
    def from_values(cls, v: Values) -> GroupConfig:
        """Out of a broker's settings."""
        return cls(
            min_session_timeout_ms=v.integer("group.min.session.timeout.ms"),
            max_session_timeout_ms=v.integer("group.max.session.timeout.ms"),
            initial_rebalance_delay_ms=v.integer("group.initial.rebalance.delay.ms"),
            max_size=v.integer("group.max.size"),
            share_max_size=v.integer("group.share.max.size"),
            share_initialize_retry_ms=v.integer("group.share.initialize.retry.interval.ms"),
            consumer_max_size=v.integer("group.consumer.max.size"),
            regex_refresh_ms=v.integer("group.consumer.regex.refresh.interval.ms"),
            migration_policy=v.string("group.consumer.migration.policy").lower(),
            batch_max_bytes=v.integer("message.max.bytes"),
            offset_metadata_max_bytes=v.integer("offset.metadata.max.bytes"),
            offsets_retention_ms=v.integer("offsets.retention.minutes") * 60_000,
            offsets_check_interval_ms=v.integer("offsets.retention.check.interval.ms"),
        )
