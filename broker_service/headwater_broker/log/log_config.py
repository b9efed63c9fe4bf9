"""The settings of one log: a topic's overrides over the broker's defaults, typed (LogConfig)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from headwater.config.keys import check_topic_overrides, topic_values
from headwater.errors import UsageError

NO_LIMIT = -1
LIKE_TOTAL = -2
"""Value of local.retention.* that means retention.* (KIP-405)."""
LEVELLED = ("gzip", "lz4", "zstd")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Immutable: a change of config replaces it (`UnifiedLog.update_config`)."""

    retention_ms: int
    retention_bytes: int
    local_retention_ms: int
    local_retention_bytes: int
    segment_bytes: int
    segment_ms: int
    segment_jitter_ms: int
    segment_index_bytes: int
    index_interval_bytes: int
    max_message_bytes: int
    is_compacted: bool
    is_deleted: bool
    is_log_append_time: bool
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    flush_messages: int
    flush_ms: int
    file_delete_delay_ms: int
    min_insync_replicas: int
    remote_storage: bool
    compression_type: str
    compression_levels: Mapping[str, int]
    """By codec, for codecs that have levels (KIP-390)."""
    delete_retention_ms: int
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    max_compaction_lag_ms: int
    leader_throttled: frozenset[str] = frozenset()
    """Items are `*` or `partition:broker` (KIP-73); the same for the next list."""
    follower_throttled: frozenset[str] = frozenset()

    @staticmethod
    def from_overrides(
        overrides: Mapping[str, str], broker: Mapping[str, str] | None = None
    ) -> LogConfig:
        """Typed settings; `broker` has the broker's own properties. Raises UsageError."""
        v = topic_values(overrides, broker or {})
        return LogConfig(
            retention_ms=v.integer("retention.ms"),
            retention_bytes=v.integer("retention.bytes"),
            local_retention_ms=v.integer("local.retention.ms"),
            local_retention_bytes=v.integer("local.retention.bytes"),
            segment_bytes=v.integer("segment.bytes"),
            segment_ms=v.integer("segment.ms"),
            segment_jitter_ms=v.integer("segment.jitter.ms"),
            segment_index_bytes=v.integer("segment.index.bytes"),
            index_interval_bytes=v.integer("index.interval.bytes"),
            max_message_bytes=v.integer("max.message.bytes"),
            is_compacted="compact" in v.strings("cleanup.policy"),
            is_deleted="delete" in v.strings("cleanup.policy"),
            is_log_append_time=v.string("message.timestamp.type") == "LogAppendTime",
            timestamp_before_max_ms=v.integer("message.timestamp.before.max.ms"),
            timestamp_after_max_ms=v.integer("message.timestamp.after.max.ms"),
            flush_messages=v.integer("flush.messages"),
            flush_ms=v.integer("flush.ms"),
            file_delete_delay_ms=v.integer("file.delete.delay.ms"),
            min_insync_replicas=v.integer("min.insync.replicas"),
            remote_storage=v.boolean("remote.storage.enable"),
            compression_type=v.string("compression.type"),
            compression_levels={c: v.integer(f"compression.{c}.level") for c in LEVELLED},
            delete_retention_ms=v.integer("delete.retention.ms"),
            min_cleanable_dirty_ratio=v.number("min.cleanable.dirty.ratio"),
            min_compaction_lag_ms=v.integer("min.compaction.lag.ms"),
            max_compaction_lag_ms=v.integer("max.compaction.lag.ms"),
            leader_throttled=frozenset(v.strings("leader.replication.throttled.replicas")),
            follower_throttled=frozenset(v.strings("follower.replication.throttled.replicas")),
        )

    @property
    def batch_bytes_max(self) -> int:
        """The largest batch that is accepted: max.message.bytes, and it must fit into a segment."""
        return min(self.max_message_bytes, self.segment_bytes)

    @property
    def bounds_age(self) -> bool:
        """Whether records may be too old (message.timestamp.before.max.ms is set)."""
        return self.timestamp_before_max_ms < 2**62

    @property
    def effective_segment_ms(self) -> int:
        """segment.ms; of a compacted log at most max.compaction.lag.ms, as the active segment is
        never compacted (KIP-354)."""
        if self.is_compacted:
            return min(self.segment_ms, self.max_compaction_lag_ms)
        return self.segment_ms

    @property
    def effective_local_retention_ms(self) -> int:
        """Age limit of the local log when tiering is on."""
        return (
            self.retention_ms if self.local_retention_ms == LIKE_TOTAL else self.local_retention_ms
        )

    @property
    def effective_local_retention_bytes(self) -> int:
        """Size limit of the local log when tiering is on."""
        if self.local_retention_bytes == LIKE_TOTAL:
            return self.retention_bytes
        return self.local_retention_bytes


class LogConfigs:
    """Settings of topics over one broker's properties; topics without overrides share theirs."""

    def __init__(self, broker: Mapping[str, str]) -> None:
        self._broker = dict(broker)
        self._plain: LogConfig | None = None

    def of(self, overrides: Mapping[str, str]) -> LogConfig:
        """A topic's settings. An override that this broker does not know, as a newer controller may
        store it, is ignored: the topic could not be hosted otherwise."""
        usable: dict[str, str] = {}
        for name, text in overrides.items():
            try:
                check_topic_overrides({name: text})
            except UsageError as e:
                logger.error("a topic's override is ignored on this broker: %s", e)
            else:
                usable[name] = text
        if usable:
            return LogConfig.from_overrides(usable, self._broker)
        if self._plain is None:
            self._plain = LogConfig.from_overrides({}, self._broker)
        return self._plain
