"""`Producer.prepare` and `PreparedTransaction` against a model of the coordinator."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest

from headwater import (
    CheckpointedProducer,
    CheckpointState,
    ErrorCode,
    FatalTransactionError,
    IllegalStateError,
    NoBrokersAvailableError,
    OptionError,
    PreparedTransaction,
    Producer,
    RetriableTransactionError,
    UsageError,
)
from headwater.client.cluster import Cluster
from headwater.wire.apis.k22_init_producer_id import InitProducerIdRequest
from headwater.wire.apis.k26_end_txn import EndTxnRequest
from unit.client.transaction_broker import Loss, Marker, TransactionBroker, Written


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def b(request: pytest.FixtureRequest) -> Iterator[TransactionBroker]:
    with TransactionBroker(request.param) as broker:
        yield broker


def prepared(b: TransactionBroker, **options: Any) -> PreparedTransaction:
    """The handle of a transaction with one record; its producer is closed."""
    with Producer(b.bootstrap, transactional_id="x", **options) as producer:
        producer.begin_transaction()
        producer.send("t", b"a", partition=0)
        return producer.prepare()


def test_a_handle_survives_its_producer_json_and_pickling(b: TransactionBroker) -> None:
    handle = prepared(b)
    assert [type(row) for row in b.log] == [Written]
    assert handle == PreparedTransaction("x", 100, 0, b.version)
    again = PreparedTransaction.from_json(handle.to_json())
    assert again == handle == pickle.loads(pickle.dumps(handle))
    again.commit(b.bootstrap)
    assert [row.count for row in b.visible()] == [1]
    assert b.served(EndTxnRequest) == [5 if b.version == 2 else 4]
    handle.commit(b.bootstrap)
    assert [type(row) for row in b.log] == [Written, Marker]
    with pytest.raises(FatalTransactionError, match=r"was committed, or a newer producer"):
        handle.abort(b.bootstrap)


def test_a_handle_aborts_too(b: TransactionBroker) -> None:
    handle = prepared(b)
    handle.abort(b.bootstrap)
    handle.abort(b.bootstrap)
    assert b.log[1:] == [Marker(0, 0, commit=False)]
    with pytest.raises(FatalTransactionError, match=r"the transaction is lost.*timeout"):
        handle.commit(b.bootstrap)


def test_a_lost_transaction_is_told_from_a_committed_one(b: TransactionBroker) -> None:
    handle = prepared(b)
    b.time_out("x")
    with pytest.raises(FatalTransactionError, match=r"epoch 0: .*the transaction is lost") as got:
        handle.commit(b.bootstrap)
    assert got.value.remedy == "close"


@pytest.mark.parametrize(
    "fault",
    [Loss.REQUEST, Loss.REPLY, ErrorCode.NOT_COORDINATOR, ErrorCode.CONCURRENT_TRANSACTIONS],
)
def test_an_end_is_repeated_until_its_outcome_is_known(
    b: TransactionBroker, fault: ErrorCode | Loss
) -> None:
    handle = prepared(b)
    b.faults[EndTxnRequest] += [fault, fault]
    handle.commit(b.bootstrap)
    assert b.log[1:] == [Marker(0, 0, commit=True)]


def test_an_end_whose_outcome_stays_unknown_can_be_retried(b: TransactionBroker) -> None:
    handle = prepared(b)
    b.faults[EndTxnRequest] += [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 1000
    with pytest.raises(
        RetriableTransactionError, match=r"COORDINATOR_NOT_AVAILABLE.*call it again"
    ):
        handle.commit(b.bootstrap, timeout_ms=100)
    b.faults.clear()
    handle.commit(b.bootstrap)
    assert len(b.visible()) == 1


def test_the_producer_itself_ends_what_it_has_prepared(b: TransactionBroker) -> None:
    with Producer(b.bootstrap, transactional_id="x") as producer:
        for commit in (True, False):
            producer.begin_transaction()
            producer.send("t", b"a", partition=0)
            handle = producer.prepare()
            assert producer.prepare() == handle
            for call in (producer.begin_transaction, lambda: producer.send("t", b"b")):
                with pytest.raises(IllegalStateError, match="has a prepared transaction"):
                    call()
            if commit:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
    assert [row.commit for row in b.log if isinstance(row, Marker)] == [True, False]


def test_an_empty_transaction_has_an_empty_handle(b: TransactionBroker) -> None:
    with Producer(b.bootstrap, transactional_id="x") as producer:
        producer.begin_transaction()
        handle = producer.prepare()
        producer.commit_transaction()
    assert handle.is_empty
    handle.commit(b.bootstrap)
    assert b.served(EndTxnRequest) == []


PASSWORD = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "PLAIN",
    "sasl_username": "ann",
    "sasl_password": "secret",
}


def test_the_connections_that_end_it_log_in(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    async def out_of_reach(cluster: Cluster, _timeout_ms: float) -> None:
        seen.append(cluster.options.credentials.sasl("a"))
        raise NoBrokersAvailableError("nobody is there")

    monkeypatch.setattr(Cluster, "bootstrap", out_of_reach)
    handle = PreparedTransaction("job-0-0", 1, 0)
    sink = CheckpointedProducer("a:1", transactional_id_prefix="job", **PASSWORD)
    for end in (
        lambda: handle.commit("a:1", **PASSWORD),
        lambda: handle.abort("a:1", **PASSWORD),
        lambda: sink.recover(CheckpointState(0, 1, 1, (handle,))),
    ):
        with pytest.raises(NoBrokersAvailableError):
            end()
    assert len(seen) == 3 and None not in seen
    with pytest.raises(OptionError, match="did you mean 'sasl_username'"):
        handle.commit("a:1", sasl_user="ann")  # type: ignore[call-arg]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"transactional_id": "x"}', "null"])
def test_text_that_is_no_handle_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="no prepared transaction"):
        PreparedTransaction.from_json(text)


def test_a_handle_of_a_newer_headwater_is_refused() -> None:
    text = PreparedTransaction("x", 1, 0).to_json()
    assert '"format": 1' in text
    with pytest.raises(UsageError, match="its format is 2, this Headwater reads up to 1"):
        PreparedTransaction.from_json(text.replace('"format": 1', '"format": 2'))


def test_a_prepared_transaction_is_kept_where_the_broker_offers_it() -> None:
    """KIP-939: it is ended by the epoch that InitProducerId returned."""
    two_phase = {"transaction_two_phase_commit_enable": True}
    with TransactionBroker(init_version=6) as b:
        handle = prepared(b, **two_phase)
        with Producer(b.bootstrap, transactional_id="x", **two_phase) as producer:
            assert producer.init_transactions(keep_prepared=True) == handle
            producer.commit_transaction()
            with producer.transaction():
                producer.send("t", b"b", partition=0)
        assert len(b.visible()) == 2
        with Producer(b.bootstrap, transactional_id="y", **two_phase) as producer:
            assert producer.init_transactions(keep_prepared=True) is None
        assert b.served(InitProducerIdRequest) == [6, 6, 6]


def test_two_phase_commit_that_the_broker_does_not_offer_is_named() -> None:
    with (
        TransactionBroker() as b,
        Producer(b.bootstrap, transactional_id="x") as producer,
        pytest.raises(FatalTransactionError, match=r"InitProducerId 6.*prepare\(\) works without"),
    ):
        producer.init_transactions(keep_prepared=True)
