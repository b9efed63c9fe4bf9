"""Client quotas of the cluster, and the rates measured for them (KIP-13, KIP-124, KIP-546).

The rates of a client's Produce and Fetch bytes and of its request time are measured over the last
windows (quota.window.num, quota.window.size.seconds). Requests get a `RequestQuota` only while
`is_active`.
"""

from __future__ import annotations

from collections.abc import Mapping

from headwater.clock import Clock
from headwater.config.quota_precedence import (
    CONSUMER_BYTE_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    Quotas,
    connection_rate_of,
    entity_of,
    quota_of,
)
from headwater_broker.quota.rate import WindowedRate, Windows
from headwater_broker.quota.throttle_time import QuotaLimit, RequestQuota, ThrottleCounts

REMEMBERED_MAX = 10_000
"""Clients with a measured rate. Beyond that silent clients are forgotten, and if none is silent,
all."""
DELAY_MAX_MS = 2**31 - 1
"""throttle_time_ms is an int32."""


class ClientQuotas:
    """All client quotas that apply at this broker."""

    def __init__(
        self, clock: Clock, windows: Windows, *, remembered_max: int = REMEMBERED_MAX
    ) -> None:
        self.now = clock.monotonic
        self.windows = windows
        self.is_active = False
        """Some user or client has a quota. While none has, nothing is measured."""
        self._counts = ThrottleCounts()
        self.throttled = self._counts.throttled
        """How often clients were throttled, by quota key."""
        self.throttled_ms = self._counts.throttled_ms
        """For how long in total, by quota key."""
        self._remembered_max = remembered_max
        self._stored: Quotas = {}
        self._quotas: dict[tuple[str, str], RequestQuota] = {}
        self._rates: dict[tuple[str, str, str], WindowedRate] = {}

    @property
    def measured(self) -> int:
        """How many rates are measured."""
        return len(self._rates)

    def update(self, stored: Mapping[str, Mapping[str, str]]) -> None:
        """Set the quotas by entity path. What was measured stays."""
        self._stored = stored
        self._quotas = {}
        entities = (entity_of(path) for path, row in stored.items() if row)
        self.is_active = any(entity is not None and "ip" not in entity for entity in entities)
        if not self.is_active:
            self._rates = {}

    def of(self, user: str, client_id: str) -> RequestQuota:
        """The quotas of this client."""
        quota = self._quotas.get((user, client_id))
        if quota is None:
            if len(self._quotas) >= self._remembered_max:
                self._quotas = {}
            quota = self._quotas[user, client_id] = RequestQuota(
                self._limit(PRODUCER_BYTE_RATE, user, client_id),
                self._limit(CONSUMER_BYTE_RATE, user, client_id),
                self._limit(REQUEST_PERCENTAGE, user, client_id),
            )
        return quota

    def connection_rate(self, host: str) -> float | None:
        """New connections per second that an address may make (KIP-612); None: no limit."""
        return connection_rate_of(self._stored, host)

    def _limit(self, key: str, user: str, client_id: str) -> QuotaLimit | None:
        found = quota_of(self._stored, key, user, client_id)
        if found is None:
            return None
        per_s, shared = found
        if len(self._rates) >= self._remembered_max:
            self._forget_silent()
        rate = self._rates.setdefault((key, *shared), WindowedRate(self.windows))
        # As in Kafka: request time throttles a client for one window at most.
        longest = int(self.windows.seconds * 1000) if key == REQUEST_PERCENTAGE else DELAY_MAX_MS
        return QuotaLimit(key, per_s, rate, longest, self.now, self._counts)

    def _forget_silent(self) -> None:
        now = self.now()
        rates = {name: rate for name, rate in self._rates.items() if rate.per_second(now)}
        self._rates = rates if len(rates) < self._remembered_max else {}
        self._quotas = {}
