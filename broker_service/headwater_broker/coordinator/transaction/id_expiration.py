"""Expires transactional ids that were idle too long (transactional.id.expiration.ms). Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from headwater_broker.coordinator.transaction.config import TransactionConfig
from headwater_broker.coordinator.transaction.states import TransactionEvent
from headwater_broker.coordinator.transaction.transaction import Transaction

CLEANUP_PAUSE_MS = 10
"""Between two parts of one look for expired ids."""
IDS_PER_CLEANUP = 10_000
"""Transactional ids that one part of a look goes over: some 2 ms of the loop."""


class IdExpiration:
    """Looks at all transactional ids from time to time, in parts, so that no tick is long."""

    def __init__(self, transactions: Mapping[str, Transaction], config: TransactionConfig) -> None:
        self._transactions = transactions
        self._config = config
        self._to_look_at: list[str] = []

    @property
    def pause_ms(self) -> int:
        """How long to wait for the next part."""
        return CLEANUP_PAUSE_MS if self._to_look_at else self._config.cleanup_interval_ms

    def next_part(self, now_ms: int, most: int) -> Iterator[Transaction]:
        """The next ids that have expired, `most` of them at most, as they are to be recorded."""
        if not self._to_look_at:
            self._to_look_at = list(self._transactions)
        before_ms = now_ms - self._config.expiration_ms
        for _ in range(min(IDS_PER_CLEANUP, len(self._to_look_at))):
            if most <= 0:
                return
            known = self._transactions.get(self._to_look_at.pop())
            if known is None or known.membership is not None or not known.state.is_idle:
                continue  # a sink keeps its slots: a replay after a week must not write twice
            if known.last_update_ms <= before_ms:
                most -= 1
                yield expire(known, now_ms)


def expire(known: Transaction, now_ms: int) -> Transaction:
    """The transactional id is forgotten."""
    return known._replace(state=known.state_after(TransactionEvent.EXPIRED), last_update_ms=now_ms)
