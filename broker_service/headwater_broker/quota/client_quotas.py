"""Client quotas as they are enforced (KIP-13, KIP-124, KIP-219): who may still, and else when.

What a client produces, fetches and costs is measured over the last windows (quota.window.num,
quota.window.size.seconds). Who exceeds a quota is answered at once, told how long to wait
(throttle_time_ms), and read from no more for that time. Handlers and servers ask only while
`is_active`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from headwater.clock import Clock
from headwater.config.quotas import (
    CONSUMER_BYTE_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    Quotas,
    connection_rate_of,
    entity_of,
    quota_of,
)
from headwater_broker.quota.rate import WindowedRate, Windows

REMEMBERED_MAX = 10_000
"""Clients with a measured rate; beyond, silent ones are forgotten, and then all."""
DELAY_MAX_MS = 2**31 - 1
"""throttle_time_ms is an int32."""


class Limit:
    """One quota as one client meets it; the rate is everybody's who shares the quota."""

    __slots__ = ("_most_ms", "_quotas", "key", "per_s", "rate")

    def __init__(
        self, quotas: ClientQuotas, key: str, per_s: float, rate: WindowedRate, most_ms: int
    ) -> None:
        self.key = key
        self.per_s = per_s
        """Bytes per second, or percent of the broker's loop."""
        self.rate = rate
        self._quotas = quotas
        self._most_ms = most_ms

    def record(self, amount: float) -> int:
        """So much passed: how long nothing more may, in ms; 0 within the quota."""
        now = self._quotas.now()
        self.rate.record(amount, now)
        return self._delay_ms(now)

    def take(self, amount: float) -> int:
        """As `record`, but what exceeds the quota does not pass and does not count.

        Something must pass that is larger than all windows allow: it does after a silence.
        """
        now = self._quotas.now()
        was_silent = not self.rate.per_second(now)
        self.rate.record(amount, now)
        if was_silent:
            return 0
        delay_ms = self._delay_ms(now)
        if delay_ms:
            self.rate.record(-amount, now)
        return delay_ms

    def _delay_ms(self, now: float) -> int:
        delay_s = self.rate.delay_s(self.per_s, now)
        if delay_s <= 0:
            return 0
        delay_ms = min(max(int(delay_s * 1000), 1), self._most_ms)
        self._quotas.throttled[self.key] += 1
        self._quotas.throttled_ms[self.key] += delay_ms
        return delay_ms


class Budget:
    """What counts for one client; None where nothing does."""

    __slots__ = ("fetch", "produce", "request")

    def __init__(self, produce: Limit | None, fetch: Limit | None, request: Limit | None) -> None:
        self.produce = produce
        self.fetch = fetch
        self.request = request


class ClientQuotas:
    """All client quotas of this broker: those of the cluster, and its own measurements."""

    def __init__(self, clock: Clock, windows: Windows) -> None:
        self.now = clock.monotonic
        self.windows = windows
        self.is_active = False
        """Some user or client has a quota. While none has, nothing is measured."""
        self.throttled: Counter[str] = Counter()
        """By quota key: how often a client was told to wait."""
        self.throttled_ms: Counter[str] = Counter()
        """By quota key: for how long together."""
        self._stored: Quotas = {}
        self._budgets: dict[tuple[str, str], Budget] = {}
        self._rates: dict[tuple[str, str, str], WindowedRate] = {}

    def update(self, stored: Mapping[str, Mapping[str, str]]) -> None:
        """Quotas by entity path, from now on; what is measured stays."""
        self._stored = stored
        self._budgets = {}
        entities = (entity_of(path) for path, row in stored.items() if row)
        self.is_active = any(entity is not None and "ip" not in entity for entity in entities)
        if not self.is_active:
            self._rates = {}

    def of(self, user: str, client_id: str) -> Budget:
        """What counts for this client."""
        budget = self._budgets.get((user, client_id))
        if budget is None:
            if len(self._budgets) >= REMEMBERED_MAX:
                self._budgets = {}
            budget = self._budgets[user, client_id] = Budget(
                self._limit(PRODUCER_BYTE_RATE, user, client_id),
                self._limit(CONSUMER_BYTE_RATE, user, client_id),
                self._limit(REQUEST_PERCENTAGE, user, client_id),
            )
        return budget

    def connection_rate(self, host: str) -> float | None:
        """New connections per second that an address may make (KIP-612); None: no limit."""
        return connection_rate_of(self._stored, host)

    def _limit(self, key: str, user: str, client_id: str) -> Limit | None:
        found = quota_of(self._stored, key, user, client_id)
        if found is None:
            return None
        per_s, shared = found
        if len(self._rates) >= REMEMBERED_MAX:
            self._forget_silent()
        rate = self._rates.setdefault((key, *shared), WindowedRate(self.windows))
        # As in Kafka: who costs too much time waits for a window at most, and is asked again.
        most_ms = int(self.windows.seconds * 1000) if key == REQUEST_PERCENTAGE else DELAY_MAX_MS
        return Limit(self, key, per_s, rate, most_ms)

    def _forget_silent(self) -> None:
        now = self.now()
        rates = {name: rate for name, rate in self._rates.items() if rate.per_second(now)}
        self._rates = rates if len(rates) < REMEMBERED_MAX else {}
        self._budgets = {}
