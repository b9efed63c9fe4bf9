"""Client quotas: the rates that they limit, and how long a client over one is throttled. Pure.

The rates of a client's Produce and Fetch bytes and of its request time are measured over the last
windows (quota.window.num, quota.window.size.seconds; KIP-13, KIP-124, KIP-546). A request gets a
`RequestQuota` only while some client has a quota (`is_active`). It measures and decides
(`throttle_time` computes how long, `headwater.config.quota_precedence` which quota applies);
`network.throttling` sets throttle_time_ms and mutes the connection (KIP-219).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from headwater.clock import Clock
from headwater.config.quota_precedence import (
    CONSUMER_BYTE_RATE,
    MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    Quotas,
    connection_rate_of,
    entity_of,
    quota_of,
)
from headwater_broker.quota.controller_mutation import MutationQuota, TokenBucket
from headwater_broker.quota.rate import WindowedRate, Windows
from headwater_broker.quota.throttle_time import throttle_time_ms

REMEMBERED_MAX = 10_000
"""Clients with a measured rate. Beyond that silent clients are forgotten, and if none is silent,
all."""
DELAY_MAX_MS = 2**31 - 1
"""throttle_time_ms is an int32."""


class ThrottleCounts:
    """How often clients were throttled, and for how many ms in total, by quota key."""

    __slots__ = ("throttled", "throttled_ms")

    def __init__(self) -> None:
        self.throttled: Counter[str] = Counter()
        self.throttled_ms: Counter[str] = Counter()


class QuotaLimit:
    """One quota as it applies to one client. Clients that share the quota share its rate."""

    __slots__ = ("_counts", "_delay_max_ms", "_now", "key", "per_s", "rate")

    def __init__(
        self,
        key: str,
        per_s: float,
        rate: WindowedRate,
        delay_max_ms: int,
        now: Callable[[], float],
        counts: ThrottleCounts,
    ) -> None:
        self.key = key
        self.per_s = per_s
        """Bytes per second, or percent of the broker's loop."""
        self.rate = rate
        self._delay_max_ms = delay_max_ms
        self._now = now
        self._counts = counts

    @property
    def burst(self) -> int:
        """The largest amount that is within the quota after a silence."""
        windows = self.rate.windows
        return max(int(self.per_s * windows.seconds * max(windows.count - 1, 1)), 1)

    def record(self, amount: float) -> int:
        """Count `amount`; the client's throttle time in ms (0: it is within the quota)."""
        now = self._now()
        self.rate.record(amount, now)
        return self._delay_ms(now)

    def record_within(self, amount: float) -> int:
        """As `record`, but `amount` does not count when it exceeds the quota: the caller withholds
        it.

        After a silence any amount passes: one larger than all windows allow never would.
        """
        now = self._now()
        was_silent = not self.rate.per_second(now)
        self.rate.record(amount, now)
        if was_silent:
            return 0
        delay_ms = self._delay_ms(now)
        if delay_ms:
            self.rate.record(-amount, now)
        return delay_ms

    def _delay_ms(self, now: float) -> int:
        delay_ms = throttle_time_ms(self.rate, self.per_s, now, self._delay_max_ms)
        if delay_ms:
            self._counts.throttled[self.key] += 1
            self._counts.throttled_ms[self.key] += delay_ms
        return delay_ms


class RequestQuota:
    """The quotas that apply to the requests of one client; None for each that is not set."""

    __slots__ = ("fetch", "produce", "request")

    def __init__(
        self, produce: QuotaLimit | None, fetch: QuotaLimit | None, request: QuotaLimit | None
    ) -> None:
        self.produce = produce
        self.fetch = fetch
        self.request = request

    def fetch_bytes_max(self, asked: int) -> int:
        """The most bytes that a consumer's fetch may return: more than all windows allow would
        never be within the quota."""
        return asked if self.fetch is None else min(asked, self.fetch.burst)

    def fetch_delay_ms(self, size_bytes: int) -> int:
        """0 when the fetch may return these bytes, which then count; else the throttle time, and
        the fetch returns none."""
        return 0 if self.fetch is None else self.fetch.record_within(size_bytes)

    def fetched(self, size_bytes: int) -> None:
        """Count bytes that a fetch returns without a check before: the next one is throttled."""
        if self.fetch is not None:
            self.fetch.record(size_bytes)

    def produce_delay_ms(self, request_bytes: int) -> int:
        """Throttle time of a client that sends so many bytes of Produce requests."""
        return 0 if self.produce is None else self.produce.record(request_bytes)

    def request_delay_ms(self, spent_s: float) -> int:
        """Throttle time of a client whose request took this much of the loop's time."""
        return 0 if self.request is None else self.request.record(100 * spent_s)


class ClientQuotas:
    """All client quotas that apply at this broker."""

    def __init__(
        self,
        clock: Clock,
        windows: Windows,
        mutation_windows: Windows | None = None,
        *,
        remembered_max: int = REMEMBERED_MAX,
    ) -> None:
        """`mutation_windows`: those of topic changes (controller.quota.window.*)."""
        self._mutation_windows = mutation_windows or Windows()
        self._buckets: dict[tuple[str, str], TokenBucket] = {}
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
        """Set the quotas by entity path. Measured rates stay."""
        self._stored = stored
        self._quotas = {}
        entities = (entity_of(path) for path, row in stored.items() if row)
        self.is_active = any(entity is not None and "ip" not in entity for entity in entities)
        if not self.is_active:
            self._rates = {}
            self._buckets = {}

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

    def mutations_of(self, user: str, client_id: str, *, is_strict: bool) -> MutationQuota:
        """The quota of topic changes for one request of this client (KIP-599)."""
        found = quota_of(self._stored, MUTATION_RATE, user, client_id)
        bucket = None
        if found is not None:
            per_s, shared = found
            bucket = self._buckets.get(shared)
            if bucket is None:
                if len(self._buckets) >= self._remembered_max:
                    self._buckets = {}
                bucket = TokenBucket(per_s, self._mutation_windows, self.now())
                self._buckets[shared] = bucket
            bucket.per_s = per_s
        return MutationQuota(bucket, self.now, is_strict=is_strict)

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
