"""Limits of replication, each with its unit and the name of its Kafka config."""

from __future__ import annotations

from dataclasses import dataclass

from headwater_broker.quota.rate import Windows


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationConfig:
    """Replication settings of one broker."""

    replica_lag_time_max_ms: int = 30_000
    """replica.lag.time.max.ms: a follower that was not caught up for this long leaves the ISR."""
    fetch_wait_max_ms: int = 500
    """replica.fetch.wait.max.ms: how long the leader may delay a fetch."""
    fetch_min_bytes: int = 1
    """replica.fetch.min.bytes."""
    fetch_max_bytes: int = 1_048_576
    """replica.fetch.max.bytes: per partition."""
    fetch_response_max_bytes: int = 10_485_760
    """replica.fetch.response.max.bytes: per fetch."""
    socket_timeout_ms: int = 30_000
    """replica.socket.timeout.ms: the connection to a leader that does not answer is dropped."""
    fetch_backoff_ms: int = 1_000
    """replica.fetch.backoff.ms: the longest pause after an error; pauses start at a 50th of it."""
    alter_partition_backoff_ms: int = 100
    """Pause before an ISR change that was rejected or not answered is proposed again."""
    alter_partition_timeout_ms: int = 10_000
    """How long a leader waits for the controller's answer to an ISR change."""
    listener: str = "PLAINTEXT"
    """inter.broker.listener.name: the listener of a leader that followers connect to."""
    quota_windows: Windows = Windows()
    """replication.quota.window.num, .window.size.seconds."""
    log_dirs_quota_windows: Windows = Windows()
    """alter.log.dirs.replication.quota.window.num, .window.size.seconds."""
