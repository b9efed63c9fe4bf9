"""Limits on how fast connections are created, at the broker and from one address (KIP-612)."""

from __future__ import annotations

from collections.abc import Callable

from headwater.clock import Clock
from headwater_broker.quota.rate import WindowedRate, Windows

HOSTS_MAX = 10_000
"""Addresses with a measured rate; beyond that, silent ones are forgotten."""


class ConnectionRates:
    """Rates of accepted connections over the windows of quotas."""

    def __init__(
        self,
        clock: Clock,
        windows: Windows,
        limit: int,
        limit_of: Callable[[str], float | None],
    ) -> None:
        self.limit = limit
        """max.connection.creation.rate: connections per second of the whole broker."""
        self._clock = clock
        self._windows = windows
        self._limit_of = limit_of
        self._all = WindowedRate(windows)
        self._hosts: dict[str, WindowedRate] = {}

    def host_delay_ms(self, host: str) -> int:
        """Count a connection of `host`; the delay after which it is to be closed, 0 within the
        limit. A connection over the limit does not count."""
        limit = self._limit_of(host)
        if limit is None:
            return 0
        now = self._clock.monotonic()
        rate = self._hosts.get(host)
        if rate is None:
            if len(self._hosts) >= HOSTS_MAX:
                self._hosts = {h: r for h, r in self._hosts.items() if r.per_second(now)}
            rate = self._hosts[host] = WindowedRate(self._windows)
        delay_ms = self._record(rate, limit, now)
        if delay_ms:
            rate.record(-1, now)
        return delay_ms

    def delay_ms(self) -> int:
        """Count a connection of the broker; the delay after which it is served."""
        return self._record(self._all, self.limit, self._clock.monotonic())

    def _record(self, rate: WindowedRate, limit: float, now: float) -> int:
        """As in Kafka, no connection waits longer than a window."""
        rate.record(1, now)
        delay_s = min(rate.delay_s(limit, now), self._windows.seconds)
        return max(int(delay_s * 1000), 0)
