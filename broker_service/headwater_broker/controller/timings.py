"""The controller's times: timer, timeouts, and when the balance of leaders is checked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

CALL_TIMEOUT_MS = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerTimings:
    """Times that are no Kafka settings."""

    tick_s: float = 1.0
    """Period of the controller's timer."""
    first_balance_s: float = 5.0
    """The first check of the balance, after an election. Kafka's delay is the same."""
    delivery_wait_s: float = 1.0
    """How long an admin reply waits for brokers that do not take the new state. Leaders are elected
    by then."""
    call_timeout_ms: int = CALL_TIMEOUT_MS
    """Timeout of a request to a broker."""
    resign_timeout_s: float = 2.0
    """Limit on resigning: kazoo holds calls while ZooKeeper is unreachable, and a broker must be
    able to stop all the same."""


CHANGES_KEPT_S = 900.0
"""How long a notification of a changed token stays, for brokers that are slow to read it."""


class TokenExpirySchedule:
    """When to remove expired delegation tokens, and the notifications of their changes."""

    def __init__(self, elected_at_s: float) -> None:
        self._next_s = elected_at_s
        self._next_purge_s = elected_at_s
        self._seen: frozenset[str] = frozenset()

    def is_due(self, now_s: float, interval_ms: int) -> bool:
        """Whether to look for expired tokens now; the next look is an interval later."""
        if now_s < self._next_s:
            return False
        self._next_s = now_s + interval_ms / 1000
        return True

    def is_purge_due(self, now_s: float) -> bool:
        """Whether to list the notifications for `purged`."""
        if now_s < self._next_purge_s:
            return False
        self._next_purge_s = now_s + CHANGES_KEPT_S
        return True

    def purged(self, names: Iterable[str]) -> list[str]:
        """Of the notifications that are there now, those to remove: the last list had them too."""
        now = frozenset(names)
        old = sorted(now & self._seen)
        self._seen = now
        return old


class BalanceSchedule:
    """When to check the balance of leaders (`leader.imbalance.check.interval.seconds`)."""

    def __init__(self, elected_at_s: float, first_s: float) -> None:
        self._next_s = elected_at_s + first_s

    def is_due(self, now_s: float, interval_ms: int) -> bool:
        """Whether to check now; the next check is an interval later."""
        if now_s < self._next_s:
            return False
        self._next_s = now_s + interval_ms / 1000
        return True
