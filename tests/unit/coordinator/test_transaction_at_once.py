"""Requests of NOBODY to a transaction's shard: decided now, or not at all."""

from __future__ import annotations

from headwater_broker.coordinator.common.shard import NOBODY, Decision
from headwater_broker.coordinator.transaction.records import transaction_record
from headwater_broker.coordinator.transaction.states import TransactionState
from headwater_broker.coordinator.transaction.transaction import (
    LAST_EPOCH,
    NO_PRODUCER_ID,
    TRANSACTION_V2,
    ProducerIdentity,
)
from unit.coordinator.test_transaction_shard import MORE, PARTITIONS, Coordinator, ongoing

S = TransactionState


def add(c: Coordinator, producer: ProducerIdentity) -> Decision:
    return c.shard.add_partitions("t", producer, MORE, c.now, NOBODY)


def end(c: Coordinator, producer: ProducerIdentity, *, commit: bool = True) -> Decision:
    return c.shard.end_transaction(
        "t",
        producer,
        commit=commit,
        client_version=TRANSACTION_V2,
        fresh_producer_id=NO_PRODUCER_ID,
        now=c.now,
        token=NOBODY,
    )


def test_what_changes_the_transaction_confirms_its_identity() -> None:
    c, producer = ongoing()
    added = add(c, producer)
    assert added.confirmations == [(NOBODY, producer)] and len(added.records) == 1
    c.take(added)
    assert c.shard.transactions["t"].partitions == {**PARTITIONS, **MORE}
    ended, following = end(c, producer), ProducerIdentity(producer.producer_id, producer.epoch + 1)
    assert ended.confirmations == [(NOBODY, following)] and len(ended.records) == 1
    c.take(ended)
    assert c.state is S.PREPARE_COMMIT and c.due == [following]


def test_what_has_to_wait_is_forgotten() -> None:
    c, producer = ongoing()
    following = c.identity(c.end(producer))
    for decision in (add(c, following), end(c, following), end(c, following, commit=False)):
        assert not decision.records and not decision.confirmations and not decision.replies
    written = len(c.log)
    c.markers()
    assert c.state is S.COMPLETE_COMMIT and len(c.log) == written + 1, "none of them waited"


def test_whoever_waits_comes_first() -> None:
    c, producer = ongoing()
    following = c.identity(c.end(producer))
    waits = c.add(following)
    assert not add(c, following).records
    c.markers()
    assert c.identity(waits) == following
    assert set(c.shard.transactions["t"].partitions) == set(PARTITIONS)
    assert add(c, following).confirmations == [(NOBODY, following)]


def test_what_is_refused_or_changes_nothing_has_no_record() -> None:
    c, producer = ongoing()
    other = ProducerIdentity(producer.producer_id, producer.epoch + 1)
    for decision in (add(c, other), end(c, other)):
        assert not decision.records and not decision.confirmations
    c.take(add(c, producer))
    again = add(c, producer)
    assert not again.records and not again.confirmations


def test_an_exhausted_producer_is_left_to_those_who_have_an_id_for_it() -> None:
    c, _ = ongoing()
    last = c.shard.transactions["t"]._replace(producer_epoch=LAST_EPOCH)
    c.replay(transaction_record(last))
    assert not end(c, last.identity).records
    rotated = c.identity(c.end(last.identity))
    assert rotated.epoch == 0 and rotated.producer_id != last.producer_id
