"""Replication quotas (KIP-73): how fast listed replicas may be copied.

The rate is simple: the bytes since the oldest kept window began, over the time since then, at least
one window (Kafka: `ReplicationQuotaManager`).

A leader leaves the records of a listed partition out of its answers to followers that are not in
sync while the rate is exceeded; a follower leaves a listed partition out of its fetches while that
is behind. In-sync replicas and partitions that are not listed are never slowed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from headwater.clock import Clock
from headwater_broker.log.log_config import LogConfig
from headwater_broker.quota.rate import SimpleRate, Windows
from headwater_broker.replica.partition import Partition

EVERY_REPLICA = "*"
UNLIMITED = sys.maxsize
"""Bytes per second."""


class ReplicationQuota:
    """One rate limit of this broker, and the replicas that it throttles."""

    def __init__(
        self,
        broker_id: int,
        clock: Clock,
        windows: Windows,
        listed: Callable[[LogConfig], frozenset[str]],
    ) -> None:
        self.bytes_per_s = UNLIMITED
        self._broker_id = broker_id
        self._clock = clock
        self._rate = SimpleRate(windows)
        self._listed = listed

    def covers(self, partition: Partition) -> bool:
        """True when the topic's list names this broker's replica of it."""
        listed = self._listed(partition.log.config)
        if not listed:
            return False
        return EVERY_REPLICA in listed or f"{partition.partition}:{self._broker_id}" in listed

    @property
    def is_exceeded(self) -> bool:
        """True while the rate is above the limit."""
        if self.bytes_per_s == UNLIMITED:
            return False
        return self._rate.per_second(self._clock.monotonic()) > self.bytes_per_s

    def record(self, size: int) -> None:
        """Count bytes."""
        if self.bytes_per_s != UNLIMITED:
            self._rate.record(size, self._clock.monotonic())

    def throttles(self, partition: Partition) -> bool:
        """True while no records of this partition may be copied."""
        return self.is_exceeded and self.covers(partition)

    def record_copied(self, partition: Partition, size: int) -> None:
        """Count the copied bytes of a partition, if it is listed."""
        if self.bytes_per_s != UNLIMITED and self.covers(partition):
            self.record(size)


class ReplicationQuotas:
    """The three rate limits of a broker."""

    def __init__(
        self, broker_id: int, clock: Clock, replication: Windows, log_dirs: Windows
    ) -> None:
        self.leader = ReplicationQuota(
            broker_id, clock, replication, lambda config: config.leader_throttled
        )
        """leader.replication.throttled.rate: records sent to followers out of sync."""
        self.follower = ReplicationQuota(
            broker_id, clock, replication, lambda config: config.follower_throttled
        )
        """follower.replication.throttled.rate: records fetched by followers here."""
        self.log_dirs = ReplicationQuota(broker_id, clock, log_dirs, _every)
        """replica.alter.log.dirs.io.max.bytes.per.second: all copies between log directories."""

    def set_rates(self, leader: int, follower: int, log_dirs: int) -> None:
        """Set the limits, in bytes per second."""
        self.leader.bytes_per_s = leader
        self.follower.bytes_per_s = follower
        self.log_dirs.bytes_per_s = log_dirs


_EVERY = frozenset((EVERY_REPLICA,))


def _every(_config: LogConfig) -> frozenset[str]:
    return _EVERY
