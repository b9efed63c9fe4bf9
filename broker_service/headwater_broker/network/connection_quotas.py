"""Limits of connections: how many the broker and one address may have, and how fast they come.

Kafka's `ConnectionQuotas`: max.connections, max.connections.per.ip and its overrides,
max.connection.creation.rate (KIP-402, KIP-612).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from headwater.clock import Clock
from headwater.config.connection_overrides import connection_overrides
from headwater.config.keys import Values
from headwater_broker.quota.rate import WindowedRate, Windows
from headwater_broker.quota.throttle_time import throttle_s

HOSTS_MAX = 10_000
"""Addresses with a measured rate; beyond that, silent ones are forgotten."""

UNLIMITED = 2**31 - 1
"""Default of the limits of connections."""


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
        return int(min(throttle_s(rate, limit, now), self._windows.seconds) * 1000)


class ConnectionQuotas:
    """The limits of one listener, and the numbers of its connections by address."""

    def __init__(
        self,
        rates: ConnectionRates,
        connections_max: int,
        per_host_max: int,
        overrides: Mapping[str, int],
    ) -> None:
        """`overrides`: the limits of single addresses."""
        self.rates = rates
        self.connections_max = connections_max
        self.hosts: Counter[str] = Counter()
        self._per_host_max = per_host_max
        self._overrides = overrides

    def configure(self, values: Values) -> None:
        """Set the limits while the listener runs; those of an address are for new connections."""
        self.connections_max = values.integer("max.connections")
        self._per_host_max = values.integer("max.connections.per.ip")
        self._overrides = connection_overrides(values.strings("max.connections.per.ip.overrides"))
        self.rates.limit = values.integer("max.connection.creation.rate")

    @property
    def too_many(self) -> str:
        """The reason to close a connection above max.connections."""
        return f"more than {self.connections_max} connections (max.connections)"

    def added(self, host: str, open_now: int) -> str:
        """Count a connection of `host`, the broker's `open_now`th; the reason to refuse it, or an
        empty text."""
        self.hosts[host] += 1
        if open_now > self.connections_max:
            return self.too_many
        most = self._overrides.get(host, self._per_host_max)
        if self.hosts[host] > most:
            return f"more than {most} connections of {host} (max.connections.per.ip)"
        return ""

    def removed(self, host: str) -> None:
        """A connection of `host` is gone."""
        self.hosts[host] -= 1
        if not self.hosts[host]:
            del self.hosts[host]
