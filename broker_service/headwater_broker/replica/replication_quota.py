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
    """One rate of this broker, and the partitions that it is for."""

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
        """True while nothing more may pass."""
        if self.bytes_per_s == UNLIMITED:
            return False
        return self._rate.per_second(self._clock.monotonic()) > self.bytes_per_s

    def record(self, size: int) -> None:
        """So many bytes passed."""
        if self.bytes_per_s != UNLIMITED:
            self._rate.record(size, self._clock.monotonic())

    def holds_back(self, partition: Partition) -> bool:
        """True while nothing of this partition may pass."""
        return self.is_exceeded and self.covers(partition)

    def passed(self, partition: Partition, size: int) -> None:
        """Bytes of a partition passed: they count when it is listed."""
        if self.bytes_per_s != UNLIMITED and self.covers(partition):
            self.record(size)


class ReplicationQuotas:
    """The three rates of a broker."""

    def __init__(
        self, broker_id: int, clock: Clock, replication: Windows, log_dirs: Windows
    ) -> None:
        self.leader = ReplicationQuota(
            broker_id, clock, replication, lambda config: config.leader_throttled
        )
        """leader.replication.throttled.rate: what leaders here give to followers out of sync."""
        self.follower = ReplicationQuota(
            broker_id, clock, replication, lambda config: config.follower_throttled
        )
        """follower.replication.throttled.rate: what followers here ask for."""
        self.log_dirs = ReplicationQuota(broker_id, clock, log_dirs, _every)
        """replica.alter.log.dirs.io.max.bytes.per.second: copies between folders, all of them."""

    def set_rates(self, leader: int, follower: int, log_dirs: int) -> None:
        """Bytes per second, from now on."""
        self.leader.bytes_per_s = leader
        self.follower.bytes_per_s = follower
        self.log_dirs.bytes_per_s = log_dirs


_EVERY = frozenset((EVERY_REPLICA,))


def _every(_config: LogConfig) -> frozenset[str]:
    return _EVERY
