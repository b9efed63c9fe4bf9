"""Transactions whose markers are all written, while no record says so. Pure.

The record of the id's next transaction says the same. Only where none follows for a while the
completion is recorded by itself: of many ids a part at a time, soon after each other, so that as
many can be recorded as markers can be written. Who loads the log before that sends the markers
again.
"""

from __future__ import annotations

from typing import NamedTuple

from headwater_broker.coordinator.common.shard import Now
from headwater_broker.coordinator.transaction.transaction import Transaction

RECORDED_AT_ONCE = 100
"""Completions of one tick: some 2 ms of the loop."""
PAUSE_MS = 10
"""Between two parts of those that are due."""


class _Completion(NamedTuple):
    transaction: Transaction
    due_ms: float


class Completions:
    """The completions of one shard, in the order in which they are due."""

    def __init__(self, wait_ms: int) -> None:
        self._wait_ms = wait_ms
        self._by_id: dict[str, _Completion] = {}

    def add(self, completed: Transaction, now: Now) -> None:
        """Record it after the wait, unless its id's next transaction begins before."""
        due_ms = now.steady_ms + self._wait_ms
        self._by_id[completed.transactional_id] = _Completion(completed, due_ms)

    def discard(self, transactional_id: str) -> None:
        """A record of the id is in the log."""
        self._by_id.pop(transactional_id, None)

    def get(self, transactional_id: str) -> Transaction | None:
        """The state of an id that has no record yet."""
        known = self._by_id.get(transactional_id)
        return None if known is None else known.transaction

    def take_due(self, now: Now) -> list[Transaction]:
        """The completions to record now. A record that is refused is due again after the wait."""
        due: list[Transaction] = []
        for known in self._by_id.values():
            if known.due_ms > now.steady_ms or len(due) == RECORDED_AT_ONCE:
                break
            due.append(known.transaction)
        for transaction in due:
            self.discard(transaction.transactional_id)
            self.add(transaction, now)
        return due

    def next_ms(self, now: Now) -> float | None:
        """When to call `take_due` next; None: there are no completions."""
        first = next(iter(self._by_id.values()), None)
        return None if first is None else max(first.due_ms, now.steady_ms + PAUSE_MS)
