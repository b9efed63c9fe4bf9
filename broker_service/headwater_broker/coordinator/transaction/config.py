"""The settings of transaction coordinators, with Kafka's names in the comments."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionConfig:
    """Times are milliseconds; the defaults are Kafka's."""

    max_timeout_ms: int = 900_000
    """transaction.max.timeout.ms"""
    expiration_ms: int = 604_800_000
    """transactional.id.expiration.ms"""
    cleanup_interval_ms: int = 3_600_000
    """transaction.remove.expired.transaction.cleanup.interval.ms"""
    busy_wait_ms: int = 500
    """A request that meets markers on their way waits so long before CONCURRENT_TRANSACTIONS:
    Java's producer would come back after 20 ms, librdkafka after 100, KafkaJS after 300."""
    retry_ms: int = 1_000
    """A timeout whose record was refused (too few in-sync replicas) is decided again after this."""
