"""The settings of transaction coordinators, with Kafka's names in the comments."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.config.keys import Values


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionConfig:
    """Times are milliseconds; the defaults are Kafka's."""

    max_timeout_ms: int = 900_000  # transaction.max.timeout.ms
    expiration_ms: int = 604_800_000  # transactional.id.expiration.ms
    cleanup_interval_ms: int = (
        3_600_000  # transaction.remove.expired.transaction.cleanup.interval.ms
    )
    is_two_phase_enabled: bool = False  # transaction.two.phase.commit.enable
    epoch_timeout_ms: int = 60_000  # epoch.timeout.ms
    epoch_max_ms: int = 3_600_000  # epoch.max.ms
    epoch_complete_wait_ms: int = 5_000
    """CommitEpoch waits so long for the markers of its epoch before it replies without them."""
    busy_wait_ms: int = 500
    """A request that meets markers on their way waits so long before CONCURRENT_TRANSACTIONS:
    Java's producer would come back after 20 ms, librdkafka after 100, KafkaJS after 300."""
    completion_wait_ms: int = 200
    """A completion waits so long for the next transaction of its id, whose record says the same."""
    retry_ms: int = 1_000
    """A timeout whose record was refused (too few in-sync replicas) is decided again after this."""

    @property
    def batch_outcome_ms(self) -> int:
        """How long the outcome of a batch write can be asked for after its end."""
        return max(self.epoch_max_ms, self.expiration_ms)

    @classmethod
    def from_values(cls, v: Values) -> TransactionConfig:
        """Out of a broker's settings."""
        return cls(
            max_timeout_ms=v.integer("transaction.max.timeout.ms"),
            expiration_ms=v.integer("transactional.id.expiration.ms"),
            cleanup_interval_ms=v.integer(
                "transaction.remove.expired.transaction.cleanup.interval.ms"
            ),
            epoch_timeout_ms=v.integer("epoch.timeout.ms"),
            epoch_max_ms=v.integer("epoch.max.ms"),
            is_two_phase_enabled=v.boolean("transaction.two.phase.commit.enable"),
        )
