"""The client quotas of one request: what a fetch may return, how long the client is throttled.

A `RequestQuota` is handed to a request only while some client has a quota (KIP-13, KIP-124,
KIP-219). It measures and decides; the request path mutes the connection and sets throttle_time_ms.
Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from headwater_broker.quota.rate import WindowedRate


class ThrottleCounts:
    """How often, and for how long in total, clients were throttled, by quota key."""

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
        """Count `amount`; how long the client is throttled, in ms (0: it is within the quota)."""
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
        delay_s = self.rate.delay_s(self.per_s, now)
        if delay_s <= 0:
            return 0
        delay_ms = min(max(int(delay_s * 1000), 1), self._delay_max_ms)
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
        """How many of the bytes that a consumer asks for one fetch may return: more than the
        windows allow together would never pass."""
        return asked if self.fetch is None else min(asked, self.fetch.burst)

    def fetch_delay_ms(self, size_bytes: int) -> int:
        """0 when a fetch may return so many bytes, which then count; else it returns none, and the
        client is throttled for so long."""
        return 0 if self.fetch is None else self.fetch.record_within(size_bytes)

    def fetched(self, size_bytes: int) -> None:
        """A fetch returns bytes whose number was not known before: the next one is throttled."""
        if self.fetch is not None:
            self.fetch.record(size_bytes)

    def produce_delay_ms(self, request_bytes: int) -> int:
        """How long a client is throttled that sends so many bytes of Produce requests."""
        return 0 if self.produce is None else self.produce.record(request_bytes)

    def request_delay_ms(self, spent_s: float) -> int:
        """How long a client is throttled whose request took this much of the loop's time."""
        return 0 if self.request is None else self.request.record(100 * spent_s)
