"""The quota of topic changes: partitions created and deleted per second (KIP-599). Pure.

A client has a bucket of tokens, one per partition. A change is charged whole once the bucket is not
below zero, so the bucket may go below zero by one change; then the client waits until it has
recovered.
"""

from __future__ import annotations

from collections.abc import Callable

from headwater_broker.quota.rate import Windows


class TokenBucket:
    """Tokens that fill at a rate, up to what all windows hold (Kafka's TokenBucket)."""

    __slots__ = ("_filled_at", "_tokens", "_windows", "per_s")

    def __init__(self, per_s: float, windows: Windows, now: float) -> None:
        self.per_s = per_s
        self._windows = windows
        self._tokens = self._burst
        self._filled_at = now

    @property
    def _burst(self) -> float:
        return self.per_s * self._windows.count * self._windows.seconds

    def take(self, permits: float, now: float) -> None:
        """Take tokens, also those that are not there; a negative number gives back."""
        self._fill(now)
        self._tokens = min(self._tokens - permits, self._burst)

    def wait_s(self, now: float) -> float:
        """Seconds until the bucket is not below zero."""
        self._fill(now)
        return -self._tokens / self.per_s if self._tokens < 0 else 0.0

    def _fill(self, now: float) -> None:
        self._tokens = min(self._tokens + (now - self._filled_at) * self.per_s, self._burst)
        self._filled_at = now


class MutationQuota:
    """The quota as it applies to one request.

    Strict: changes beyond the quota are refused. Permissive, for versions whose clients do not know
    THROTTLING_QUOTA_EXCEEDED: they are made, and the client is throttled after them.
    """

    __slots__ = ("_bucket", "_is_strict", "_now", "throttle_ms")

    def __init__(
        self, bucket: TokenBucket | None, now: Callable[[], float], *, is_strict: bool
    ) -> None:
        """`bucket`: None without a quota."""
        self._bucket = bucket
        self._is_strict = is_strict
        self._now = now
        self.throttle_ms = 0
        """The client's throttle time; 0 within the quota."""

    def allows(self, permits: int) -> bool:
        """Charge a change of so many partitions; False when it must be refused."""
        if self._bucket is None:
            return True
        now = self._now()
        wait_s = self._bucket.wait_s(now)
        if self._is_strict and wait_s:
            self.throttle_ms = _ms(wait_s)
            return False
        self._bucket.take(permits, now)
        if not self._is_strict:
            self.throttle_ms = _ms(self._bucket.wait_s(now))
        return True

    def give_back(self, permits: int) -> None:
        """A change that was charged failed."""
        if self._bucket is not None:
            self._bucket.take(-permits, self._now())
            if not self._is_strict:
                self.throttle_ms = _ms(self._bucket.wait_s(self._now()))


def _ms(seconds: float) -> int:
    return max(int(seconds * 1000), 1) if seconds > 0 else 0
