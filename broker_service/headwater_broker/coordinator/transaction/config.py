"""The settings of transaction coordinators; broker keys set them once requests reach the shard."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionConfig:
    """Times are milliseconds; the defaults are Kafka's."""

    max_timeout_ms: int = 900_000
    """The longest timeout that a producer may ask for."""
    expiration_ms: int = 604_800_000
    """An idle transactional id is forgotten after this time."""
    cleanup_interval_ms: int = 3_600_000
    """Time between two looks for expired transactional ids."""
    busy_wait_ms: int = 500
    """A request that meets markers on their way waits so long before CONCURRENT_TRANSACTIONS:
    Java's producer would come back after 20 ms, librdkafka after 100, KafkaJS after 300."""
    retry_ms: int = 1_000
    """A timeout whose record was refused (too few in-sync replicas) is decided again after this."""
