"""A transactional `Producer` against a model of the coordinator, in both transaction versions."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest

from headwater import (
    AbortableTransactionError,
    Consumer,
    ConsumerGroupMetadata,
    ErrorCode,
    FatalTransactionError,
    IllegalStateError,
    InvalidGroupIdError,
    KafkaError,
    OptionError,
    Producer,
    ProducerFencedError,
    RetriableTransactionError,
    TransactionAbortedError,
    UsageError,
)
from headwater.wire.apis.k00_produce import ProduceRequest
from headwater.wire.apis.k10_find_coordinator import FindCoordinatorRequest
from headwater.wire.apis.k22_init_producer_id import InitProducerIdRequest
from headwater.wire.apis.k24_add_partitions_to_txn import AddPartitionsToTxnRequest
from headwater.wire.apis.k25_add_offsets_to_txn import AddOffsetsToTxnRequest
from headwater.wire.apis.k26_end_txn import EndTxnRequest
from headwater.wire.apis.k28_txn_offset_commit import TxnOffsetCommitRequest
from headwater.wire.schema import Message
from unit.client.served_broker import wait_until
from unit.client.transaction_broker import Loss, Marker, TransactionBroker, Written

LIMIT_S = 30.0
GROUP = ConsumerGroupMetadata("g", 3, "member-1")


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def b(request: pytest.FixtureRequest) -> Iterator[TransactionBroker]:
    with TransactionBroker(request.param) as broker:
        yield broker


def producer(b: TransactionBroker, **options: Any) -> Producer:
    options = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 5, **options}
    return Producer(b.bootstrap, transactional_id="x", **options)


def written(b: TransactionBroker) -> list[int]:
    """The number of records in each visible batch."""
    return [row.count for row in b.visible()]


def test_a_transaction_is_visible_once_it_commits_and_gone_once_it_aborts(
    b: TransactionBroker,
) -> None:
    with producer(b) as p:
        p.begin_transaction()
        sent = [p.send("t", b"a", partition=n % 2) for n in range(4)]
        p.commit_transaction()
        assert all(future.done() for future in sent)
        assert written(b) == [2, 2]
        p.begin_transaction()
        p.send("t", b"b", partition=0).result(LIMIT_S)
        p.abort_transaction()
        with p.transaction():
            p.send("t", b"c", partition=0)
    assert written(b) == [2, 2, 1]
    assert all(row.is_transactional for row in b.log if isinstance(row, Written))


def test_the_protocol_is_that_of_the_finalized_transaction_version(b: TransactionBroker) -> None:
    with producer(b) as p:
        for _ in range(2):
            with p.transaction():
                p.send("t", b"a", partition=0)
                p.send_offsets({("in", 0): 5}, GROUP)
    epochs = [row.producer_epoch for row in b.log if isinstance(row, Written)]
    sequences = [row.sequence for row in b.log if isinstance(row, Written)]
    if b.version == 2:
        assert (epochs, sequences) == ([0, 1], [0, 0])
        assert b.served(AddPartitionsToTxnRequest) == b.served(AddOffsetsToTxnRequest) == []
        assert (b.served(ProduceRequest)[0], b.served(EndTxnRequest)[0]) == (12, 5)
        assert b.served(TxnOffsetCommitRequest)[0] == 5
    else:
        assert (epochs, sequences) == ([0, 0], [0, 1])
        assert b.served(AddPartitionsToTxnRequest) == b.served(AddOffsetsToTxnRequest) == [3, 3]
        assert (b.served(ProduceRequest)[0], b.served(EndTxnRequest)[0]) == (11, 4)
        assert b.served(TxnOffsetCommitRequest)[0] == 4
    assert b.served(InitProducerIdRequest) == [5]
    assert b.committed == {("in", 0): 5}
    assert b.member == (3, "member-1")


def test_offsets_of_an_aborted_transaction_are_not_committed(b: TransactionBroker) -> None:
    with producer(b) as p:
        p.begin_transaction()
        p.send_offsets({("in", 0): 5}, GROUP)
        p.abort_transaction()
        assert b.committed == {}
        with p.transaction():
            p.send_offsets({("in", 0): 6}, GROUP)
    assert b.committed == {("in", 0): 6}


def test_an_empty_transaction_asks_the_coordinator_for_nothing(b: TransactionBroker) -> None:
    with producer(b) as p:
        p.begin_transaction()
        p.commit_transaction()
        p.begin_transaction()
        p.abort_transaction()
    assert b.served(EndTxnRequest) == []


@pytest.mark.parametrize(
    "kind",
    [
        FindCoordinatorRequest,
        InitProducerIdRequest,
        AddPartitionsToTxnRequest,
        AddOffsetsToTxnRequest,
        TxnOffsetCommitRequest,
        EndTxnRequest,
    ],
)
@pytest.mark.parametrize(
    "fault",
    [
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        Loss.REQUEST,
        Loss.REPLY,
    ],
)
def test_what_a_retry_can_cure_is_retried(
    b: TransactionBroker, kind: type[Message], fault: ErrorCode | Loss
) -> None:
    b.faults[kind] += [fault, fault]
    with producer(b) as p:
        for _ in range(2):
            with p.transaction():
                p.send("t", b"a", partition=0)
                p.send_offsets({("in", 0): 5}, GROUP)
    assert written(b) == [1, 1]
    assert b.committed == {("in", 0): 5}


def test_a_lost_reply_to_endtxn_does_not_let_a_late_one_end_the_next_transaction(
    b: TransactionBroker,
) -> None:
    """Both versions have a new epoch afterwards: version 1 asks for it."""
    b.faults[EndTxnRequest] += [Loss.REPLY]
    with producer(b) as p:
        with p.transaction():
            p.send("t", b"a", partition=0)
        with p.transaction():
            p.send("t", b"b", partition=0)
    epochs = [row.producer_epoch for row in b.log if isinstance(row, Written)]
    assert epochs == [0, 1]
    assert len(b.served(InitProducerIdRequest)) == (2 if b.version == 1 else 1)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_TXN_STATE,
    ],
)
def test_a_batch_that_fails_leaves_only_the_abort_and_then_all_goes_on(
    b: TransactionBroker, code: ErrorCode
) -> None:
    with producer(b) as p:
        p.begin_transaction()
        p.send("t", b"a", partition=0).result(LIMIT_S)
        b.faults[ProduceRequest] += [code]
        error = p.send("t", b"b", partition=0).exception(LIMIT_S)
        assert isinstance(error, KafkaError) and error.code is code
        for call in (
            lambda: p.send("t", b"c", partition=0),
            lambda: p.send_offsets({("in", 0): 5}, GROUP),
            p.commit_transaction,
            p.prepare,
        ):
            with pytest.raises(AbortableTransactionError, match=r"'x': .*abort_transaction") as got:
                call()
            assert got.value.code is code and got.value.remedy == "abort"
        p.abort_transaction()
        with p.transaction():
            p.send("t", b"d", partition=0)
    assert written(b) == [1]
    assert [row.commit for row in b.log if isinstance(row, Marker)] == [False, True]


def test_records_that_wait_fail_with_their_transaction(b: TransactionBroker) -> None:
    with producer(b, linger_ms=600_000) as p:
        p.begin_transaction()
        waiting = p.send("t", b"a", partition=0)
        p.abort_transaction()
        error = waiting.exception(LIMIT_S)
        assert isinstance(error, TransactionAbortedError) and error.remedy == "abort"
        p.begin_transaction()
        waiting = p.send("t", b"a", partition=0)
        b.faults[TxnOffsetCommitRequest] += [ErrorCode.ILLEGAL_GENERATION]
        with pytest.raises(AbortableTransactionError, match="ILLEGAL_GENERATION"):
            p.send_offsets({("in", 0): 5}, GROUP)
        error = waiting.exception(LIMIT_S)
        assert isinstance(error, AbortableTransactionError)
        assert error.code is ErrorCode.ILLEGAL_GENERATION
        p.abort_transaction()
    assert b.log == []


@pytest.mark.parametrize("kind", [TxnOffsetCommitRequest, AddPartitionsToTxnRequest])
def test_a_topic_that_stays_unknown_ends_the_transaction(kind: type[Message]) -> None:
    """A new one takes a moment to reach all brokers; one that does not exist is not waited for."""
    with TransactionBroker(1) as b, producer(b) as p:
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        b.faults[kind] += [unknown] * 3
        with p.transaction():
            p.send("t", b"a", partition=0)
            p.send_offsets({("in", 0): 5}, GROUP)
        b.faults[kind] += [unknown] * 100
        with pytest.raises(AbortableTransactionError, match="UNKNOWN_TOPIC"), p.transaction():
            p.send("t", b"b", partition=0).result(LIMIT_S)
            p.send_offsets({("in", 0): 5}, GROUP)
        assert len(b.faults[kind]) > 80


def test_a_second_producer_fences_the_first(b: TransactionBroker) -> None:
    with producer(b) as first:
        first.begin_transaction()
        first.send("t", b"a", partition=0).result(LIMIT_S)
        with producer(b) as second:
            with second.transaction():
                second.send("t", b"b", partition=0)
            with pytest.raises(ProducerFencedError, match="newer producer") as got:
                first.commit_transaction()
            assert got.value.remedy == "close" and isinstance(got.value, FatalTransactionError)
        for call in (first.begin_transaction, first.abort_transaction):
            with pytest.raises(ProducerFencedError):
                call()
        with pytest.raises(ProducerFencedError):
            first.send("t", b"c", partition=0)
    assert [row.producer_epoch for row in b.visible()] == [1]


def test_a_fenced_produce_is_found_out_by_the_abort(b: TransactionBroker) -> None:
    with producer(b) as first:
        first.begin_transaction()
        first.send("t", b"a", partition=0).result(LIMIT_S)
        with producer(b) as second:
            second.init_transactions()
            assert first.send("t", b"b", partition=0).exception(LIMIT_S) is not None
            with pytest.raises(ProducerFencedError):
                first.abort_transaction()


def test_a_block_that_raises_is_aborted(b: TransactionBroker) -> None:
    with producer(b) as p:
        with pytest.raises(ZeroDivisionError), p.transaction():
            p.send("t", b"a", partition=0).result(LIMIT_S)
            1 / 0  # noqa: B018
        b.faults[ProduceRequest] += [ErrorCode.MESSAGE_TOO_LARGE]
        with pytest.raises(AbortableTransactionError), p.transaction():
            p.send("t", b"b", partition=0)
        with p.transaction():
            p.send("t", b"c", partition=0)
    assert written(b) == [1]


def test_close_aborts_what_is_open(b: TransactionBroker) -> None:
    p = producer(b)
    p.begin_transaction()
    p.send("t", b"a", partition=0).result(LIMIT_S)
    p.close()
    assert b.log[-1] == Marker(0, 0, commit=False)


def test_a_commit_without_an_answer_goes_on_and_is_joined(b: TransactionBroker) -> None:
    with producer(b) as p:
        p.begin_transaction()
        p.send("t", b"a", partition=0)
        b.faults[EndTxnRequest] += [ErrorCode.NOT_COORDINATOR] * 1000
        with pytest.raises(RetriableTransactionError, match=r"NOT_COORDINATOR.*call it again") as e:
            p.commit_transaction(timeout_ms=50)
        assert e.value.remedy == "retry" and isinstance(e.value, TimeoutError)
        for call in (p.begin_transaction, p.abort_transaction, p.prepare):
            with pytest.raises(IllegalStateError, match="commit_transaction"):
                call()
        b.faults[EndTxnRequest].clear()
        p.commit_transaction()
        p.begin_transaction()
    assert written(b) == [1]


def test_a_coordinator_that_does_not_answer_is_an_outage(b: TransactionBroker) -> None:
    told: list[KafkaError] = []
    with producer(b, outage_report_ms=20, on_error=told.append) as p:
        p.begin_transaction()
        p.send("t", b"a", partition=0).result(LIMIT_S)
        b.faults[EndTxnRequest] += [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 100_000
        with pytest.raises(RetriableTransactionError):
            p.commit_transaction(timeout_ms=1)
        wait_until(lambda: bool(told))
        (outage,) = p.statistics().outages
        assert outage.subject == "transactional id x"
        b.faults[EndTxnRequest].clear()
        p.commit_transaction()
        wait_until(lambda: p.statistics().outages == [])
    assert told[0].code is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_commit_that_waits_for_records_may_be_given_up(b: TransactionBroker) -> None:
    with producer(b) as p:
        p.begin_transaction()
        b.faults[ProduceRequest] += [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 1000
        sent = p.send("t", b"a", partition=0)
        with pytest.raises(RetriableTransactionError, match=r"1 records .* or abort_transaction"):
            p.commit_transaction(timeout_ms=50)
        with pytest.raises(IllegalStateError, match="waits for the records"):
            p.send("t", b"b", partition=0)
        p.abort_transaction()
        assert sent.exception(LIMIT_S) is not None
        b.faults[ProduceRequest].clear()
        with p.transaction():
            p.send("t", b"c", partition=0)
    assert written(b) == [1]


def test_a_commit_that_the_coordinator_refuses_can_be_aborted(b: TransactionBroker) -> None:
    for code in (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_PRODUCER_ID_MAPPING):
        with producer(b) as p:
            p.begin_transaction()
            p.send("t", b"a", partition=0)
            b.faults[EndTxnRequest] += [code]
            with pytest.raises(AbortableTransactionError, match=code.name):
                p.commit_transaction()
            p.abort_transaction()
            with p.transaction():
                p.send("t", b"b", partition=0)
    assert written(b) == [1, 1]


def test_an_id_that_the_coordinator_has_forgotten_is_claimed_anew(b: TransactionBroker) -> None:
    with producer(b) as p:
        p.begin_transaction()
        p.send("t", b"a", partition=0).result(LIMIT_S)
        b.faults[EndTxnRequest] += [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
        p.abort_transaction()
        with p.transaction():
            p.send("t", b"b", partition=0)
    assert written(b) == [1]


@pytest.mark.parametrize(
    ("transactional_id", "timeout_ms", "match"),
    [
        ("__hw.sink.0", 60_000, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED.*reserved"),
        ("x", 900_001, "INVALID_TRANSACTION_TIMEOUT.*transaction.max.timeout.ms"),
    ],
)
def test_what_the_broker_refuses_is_named(
    b: TransactionBroker, transactional_id: str, timeout_ms: int, match: str
) -> None:
    with (
        Producer(
            b.bootstrap, transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
        ) as p,
        pytest.raises(FatalTransactionError, match=match),
    ):
        p.begin_transaction()


def test_wrong_calls_name_the_right_one(b: TransactionBroker) -> None:
    with producer(b) as p:
        with pytest.raises(IllegalStateError, match="init_transactions"):
            p.send("t", b"a")
        p.init_transactions()
        wrong = (
            (p.init_transactions, "has no open transaction"),
            (p.commit_transaction, "call begin_transaction\\(\\) first"),
            (p.abort_transaction, "call begin_transaction\\(\\) first"),
            (p.prepare, "call begin_transaction\\(\\) first"),
            (lambda: p.send_offsets({("in", 0): 1}, GROUP), "call begin_transaction"),
            (lambda: p.send("t", b"a"), "send: .* call begin_transaction\\(\\) first"),
        )
        for call, match in wrong:
            with pytest.raises(IllegalStateError, match=match):
                call()
        p.begin_transaction()
        with pytest.raises(IllegalStateError, match="has an open transaction"):
            p.begin_transaction()
        with pytest.raises(OptionError, match="group_metadata"):
            p.send_offsets({("in", 0): 1}, "g")  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="give offsets, or the consumer"):
            p.send_offsets(None, GROUP)
        with pytest.raises(UsageError, match="negative"):
            p.send_offsets({("in", 0): -1}, GROUP)
        p.commit_transaction()


def test_a_consumer_that_commits_by_itself_is_refused(b: TransactionBroker) -> None:
    with Consumer(bootstrap_servers=b.bootstrap, group_id="g") as consumer, producer(b) as p:
        p.begin_transaction()
        with pytest.raises(UsageError, match="enable_auto_commit=False"):
            p.send_offsets({("in", 0): 1}, consumer)
    with Consumer(bootstrap_servers=b.bootstrap) as consumer, producer(b) as p:
        p.begin_transaction()
        with pytest.raises(InvalidGroupIdError):
            p.send_offsets(None, consumer)


def test_the_positions_of_a_consumer_are_committed(b: TransactionBroker) -> None:
    with (
        Consumer(bootstrap_servers=b.bootstrap, group_id="g", enable_auto_commit=False) as consumer,
        producer(b) as p,
    ):
        consumer.assign([("t", 1)])
        consumer.seek(("t", 1), 17)
        assert consumer.group_metadata() == ConsumerGroupMetadata("g")
        with p.transaction():
            p.send_offsets_to_transaction(None, consumer)
    assert b.committed == {("t", 1): 17}


def test_a_producer_without_an_id_has_no_transactions(b: TransactionBroker) -> None:
    with Producer(b.bootstrap) as p, pytest.raises(IllegalStateError, match="transactional_id"):
        p.begin_transaction()


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"transactional_id": 5}, "transactional_id is 5"),
        ({"transactional_id": " "}, "transactional_id is empty"),
        ({"transactional_id": "x", "acks": 1}, 'needs acks="all"'),
        ({"transactional_id": "x", "enable_idempotence": False}, "leave out enable_idempotence"),
        ({"transactional_id": "x", "transaction_timeout_ms": 0}, "transaction_timeout_ms is 0"),
        ({"transaction_two_phase_commit_enable": True}, "needs a transactional_id"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], match: str) -> None:
    with pytest.raises(UsageError, match=match):
        Producer("127.0.0.1:1", **options)


def test_errors_survive_pickling() -> None:
    error = AbortableTransactionError(ErrorCode.ILLEGAL_GENERATION, "why")
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.code, again.detail) == (type(error), error.code, "why")
    fenced = pickle.loads(pickle.dumps(ProducerFencedError("why")))
    assert isinstance(fenced, ProducerFencedError) and fenced.detail == "why"
