"""The counts follow every change of a transactional id; only open transactions are kept."""

from __future__ import annotations

from headwater_broker.coordinator.transaction.states import TransactionState
from headwater_broker.coordinator.transaction.transaction import Transaction
from headwater_broker.coordinator.transaction.transaction_counts import TransactionCounts

S = TransactionState
EMPTY = Transaction(
    transactional_id="t",
    producer_id=1,
    producer_epoch=0,
    state=S.EMPTY,
    timeout_ms=1_000,
    last_update_ms=0,
)


def test_an_id_is_counted_once_in_its_last_state() -> None:
    counts = TransactionCounts()
    before = None
    for state in (S.EMPTY, S.ONGOING, S.ONGOING, S.PREPARE_COMMIT, S.COMPLETE_COMMIT):
        after = EMPTY._replace(state=state)
        counts.replace(before, after)
        before = after
        assert +counts.by_state == {state: 1}
        assert list(counts.open.values()) == ([] if state.is_idle else [after])
    counts.replace(before, None)
    assert not +counts.by_state and not counts.open


def test_ids_are_counted_together() -> None:
    counts = TransactionCounts()
    for name, state in (("a", S.ONGOING), ("b", S.ONGOING), ("c", S.PREPARE_ABORT), ("d", S.EMPTY)):
        counts.replace(None, EMPTY._replace(transactional_id=name, state=state))
    assert counts.by_state == {S.ONGOING: 2, S.PREPARE_ABORT: 1, S.EMPTY: 1}
    assert sorted(counts.open) == ["a", "b", "c"]
