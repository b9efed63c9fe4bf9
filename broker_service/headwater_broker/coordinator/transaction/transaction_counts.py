"""Counts of a shard's transactional ids by state, and its open transactions. Pure.

Kept while records are replayed: a look at 100,000 idle ids would hold up the event loop.
"""

from __future__ import annotations

from collections import Counter

from headwater_broker.coordinator.transaction.states import TransactionState
from headwater_broker.coordinator.transaction.transaction import Transaction


class TransactionCounts:
    """Follows the transactions of one shard."""

    def __init__(self) -> None:
        self.by_state: Counter[TransactionState] = Counter()
        self.open: dict[str, Transaction] = {}
        """Transactional id -> its open transaction, one whose markers are due included."""

    def replace(self, before: Transaction | None, after: Transaction | None) -> None:
        """One id's state was `before` and is `after`; None: it is not known."""
        if before is not None:
            self.by_state[before.state] -= 1
            self.open.pop(before.transactional_id, None)
        if after is not None:
            self.by_state[after.state] += 1
            if not after.state.is_idle:
                self.open[after.transactional_id] = after
