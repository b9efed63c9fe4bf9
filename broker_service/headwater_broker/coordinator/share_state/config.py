"""The settings of share coordinators, with Kafka's names in the comments."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.config.keys import Values


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareCoordinatorConfig:
    """Times are milliseconds; the defaults are Kafka's."""

    updates_per_snapshot: int = 500  # share.coordinator.snapshot.update.records.per.snapshot
    write_timeout_ms: int = 5_000  # share.coordinator.write.timeout.ms
    prune_interval_ms: int = 300_000  # share.coordinator.state.topic.prune.interval.ms
    cold_snapshot_interval_ms: int = (
        300_000  # share.coordinator.cold.partition.snapshot.interval.ms
    )

    @classmethod
    def from_values(cls, v: Values) -> ShareCoordinatorConfig:
        """Out of a broker's settings."""
        return cls(
            updates_per_snapshot=v.integer(
                "share.coordinator.snapshot.update.records.per.snapshot"
            ),
            write_timeout_ms=v.integer("share.coordinator.write.timeout.ms"),
            prune_interval_ms=v.integer("share.coordinator.state.topic.prune.interval.ms"),
            cold_snapshot_interval_ms=v.integer(
                "share.coordinator.cold.partition.snapshot.interval.ms"
            ),
        )
