"""Completions without a record: when each is recorded, and that many of them are drained."""

from __future__ import annotations

from uuid import UUID

from headwater_broker.coordinator.common.shard import Decision, Now, StoredRecord
from headwater_broker.coordinator.transaction.completions import PAUSE_MS, RECORDED_AT_ONCE
from headwater_broker.coordinator.transaction.config import TransactionConfig
from headwater_broker.coordinator.transaction.init_producer_id import ProducerInit
from headwater_broker.coordinator.transaction.shard import TransactionShard
from headwater_broker.coordinator.transaction.states import TransactionState
from headwater_broker.coordinator.transaction.transaction import ProducerIdentity

CONFIG = TransactionConfig()
WAIT_MS = CONFIG.completion_wait_ms
PARTITIONS = {("flights", 0): UUID(int=1)}
ANY = frozenset[int]()


class Log:
    """A shard whose decisions are replayed at once."""

    def __init__(self) -> None:
        self.shard = TransactionShard(CONFIG)
        self.records: list[StoredRecord] = []

    def take(self, decision: Decision) -> object:
        for key, value in decision.records:
            self.shard.replay(len(self.records), -1, -1, key, value)
            self.records.append(StoredRecord(key, value))
        replies = [*decision.confirmations, *decision.replies]
        return replies[0][1] if replies else None

    def complete(self, name: str, at: Now, producer_id: int) -> None:
        """Run a transaction up to the completion that has no record."""
        init = ProducerInit(transactional_id=name, timeout_ms=60_000, fresh_producer_id=producer_id)
        producer = self.take(self.shard.init_producer_id(init, at, 1))
        assert isinstance(producer, ProducerIdentity)
        self.take(self.shard.add_partitions(name, producer, PARTITIONS, at, 2))
        self.take(
            self.shard.end_transaction(
                name, producer, commit=True, client_version=2, fresh_producer_id=-1, now=at, token=3
            )
        )
        [due] = self.shard.take_markers_due(len(self.records))
        assert self.shard.complete_later(name, due.identity, at)

    def tick(self, at: Now) -> int:
        """The records that a tick writes."""
        before = len(self.records)
        for decision in self.shard.tick(at):
            self.take(decision)
        return len(self.records) - before


def test_many_completions_are_recorded_in_parts_that_follow_soon() -> None:
    log, start = Log(), Now(1_000_000, 0.0)
    for number in range(2 * RECORDED_AT_ONCE + 50):
        log.complete(f"t{number}", start, number)
    parts, at_ms = [], float(WAIT_MS)
    assert log.shard.next_deadline_ms() == WAIT_MS
    for _ in range(3):
        parts.append(log.tick(Now(1_000_000, at_ms)))
        at_ms += PAUSE_MS
        assert log.shard.next_deadline_ms() is not None
    assert parts == [RECORDED_AT_ONCE, RECORDED_AT_ONCE, 50]
    assert {known.state for known in log.shard.transactions.values()} == {
        TransactionState.COMPLETE_COMMIT
    }


def test_a_completion_is_not_recorded_before_its_own_wait_is_over() -> None:
    log = Log()
    log.complete("first", Now(1_000_000, 0.0), 1)
    log.complete("second", Now(1_000_000, WAIT_MS - 1.0), 2)
    assert log.tick(Now(1_000_000, float(WAIT_MS))) == 1
    assert log.shard.transactions["first"].state is TransactionState.COMPLETE_COMMIT
    assert log.shard.transactions["second"].state is TransactionState.PREPARE_COMMIT
    at_ms = log.shard.next_deadline_ms()
    assert at_ms is not None and at_ms <= 2 * WAIT_MS - 1
    assert log.tick(Now(1_000_000, 2.0 * WAIT_MS)) == 1


def test_a_completion_without_a_record_is_listed_as_complete() -> None:
    log, now = Log(), Now(1_000_000, 0.0)
    log.complete("t", now, 1)

    def listed(state: TransactionState) -> list[str]:
        found = log.shard.listed(frozenset({state}), ANY, -1, now.wall_ms)
        return [known.transactional_id for known in found]

    assert log.shard.transactions["t"].state is TransactionState.PREPARE_COMMIT
    assert listed(TransactionState.COMPLETE_COMMIT) == ["t"]
    assert listed(TransactionState.PREPARE_COMMIT) == []
