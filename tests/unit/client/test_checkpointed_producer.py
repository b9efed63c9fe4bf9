"""`CheckpointedProducer` against a model of the coordinator: checkpoints that fail and crashes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from headwater import (
    AbortableTransactionError,
    CheckpointedProducer,
    CheckpointState,
    ClosedError,
    ErrorCode,
    FatalTransactionError,
    IllegalStateError,
    OptionError,
    RetriableTransactionError,
    UsageError,
)
from headwater.wire.apis.k00_produce import ProduceRequest
from headwater.wire.apis.k26_end_txn import EndTxnRequest
from headwater.wire.apis.k66_list_transactions import ListTransactionsRequest
from unit.client.transaction_broker import TransactionBroker


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def b(request: pytest.FixtureRequest) -> Iterator[TransactionBroker]:
    with TransactionBroker(request.param) as broker:
        yield broker


def sink(b: TransactionBroker, **options: Any) -> CheckpointedProducer:
    return CheckpointedProducer(b.bootstrap, transactional_id_prefix="job", **options)


def counts(b: TransactionBroker) -> list[int]:
    """The number of records in each visible batch."""
    return [row.count for row in b.visible()]


def open_ids(b: TransactionBroker) -> list[str]:
    return [name for name, known in b.ids.items() if known.state == "Ongoing"]


def write(s: CheckpointedProducer, records: int) -> None:
    for _ in range(records):
        s.send("t", b"v", partition=0)


def test_records_are_visible_once_their_checkpoint_is_complete(b: TransactionBroker) -> None:
    with sink(b) as s:
        s.recover(None)
        write(s, 1)
        state = s.pre_commit(1)
        write(s, 2)
        assert counts(b) == []
        s.commit(1)
        s.commit(1)
        assert counts(b) == [1]
        assert len(state.prepared) == 1
        s.pre_commit(2)
        s.commit(2)
    assert counts(b) == [1, 2]


def test_a_recovery_commits_what_the_checkpoint_holds_and_aborts_the_rest(
    b: TransactionBroker,
) -> None:
    """The crash is between the checkpoint and its commit; two more transactions are open."""
    first = sink(b)
    first.recover(None)
    write(first, 1)
    state = first.pre_commit(1).to_json()
    write(first, 2)
    first.pre_commit(2)
    write(first, 3)
    first.flush()
    assert len(open_ids(b)) == 3
    with sink(b) as again:
        again.recover(state)
        assert counts(b) == [1] and open_ids(b) == []
        write(again, 4)
        again.pre_commit(2)
        again.commit(2)
    assert counts(b) == [1, 4]
    first.close()


def test_the_same_checkpoint_can_be_recovered_from_again_and_again(b: TransactionBroker) -> None:
    """The ids that it holds are used by nothing until a later checkpoint is complete."""
    with sink(b) as s:
        s.recover(None)
        write(s, 1)
        state = s.pre_commit(1)
        s.commit(1)
    for _ in range(3):
        with sink(b) as s:
            s.recover([state])
            write(s, 2)
            s.pre_commit(2)
            write(s, 3)
    assert counts(b) == [1]


def test_a_failed_checkpoint_is_committed_with_the_next_one(b: TransactionBroker) -> None:
    with sink(b) as s:
        s.recover(None)
        write(s, 1)
        s.pre_commit(1)
        write(s, 2)
        state = s.pre_commit(2)
        assert [h.transactional_id for h in state.prepared] == ["job-0-0", "job-0-1"]
        s.commit(2)
    assert counts(b) == [1, 2]


def test_three_ids_are_enough_and_none_is_reused_while_a_state_holds_it(
    b: TransactionBroker,
) -> None:
    with sink(b) as s:
        s.recover(None)
        held: set[str] = set()
        for number in range(1, 8):
            write(s, 1)
            state = s.pre_commit(number)
            now = {h.transactional_id for h in state.prepared}
            assert not now & held
            s.commit(number)
            held = now
    assert sorted(b.ids) == ["job-0-0", "job-0-1"]
    assert counts(b) == [1] * 7


def test_a_transaction_that_timed_out_stops_the_job(b: TransactionBroker) -> None:
    with sink(b) as s:
        s.recover(None)
        write(s, 1)
        state = s.pre_commit(1)
        b.time_out("job-0-0")
        with pytest.raises(FatalTransactionError, match="transaction_timeout_ms"):
            s.commit(1)
    with sink(b) as s, pytest.raises(FatalTransactionError, match="the transaction is lost"):
        s.recover(state)


def test_a_coordinator_that_aborted_says_so_and_the_job_stops(b: TransactionBroker) -> None:
    with sink(b) as s:
        s.recover(None)
        write(s, 1)
        s.pre_commit(1)
        b.faults[EndTxnRequest] += [ErrorCode.TRANSACTION_ABORTABLE]
        with pytest.raises(FatalTransactionError, match="checkpoint 1 is lost"):
            s.commit(1)


def test_a_commit_without_an_answer_is_repeated(b: TransactionBroker) -> None:
    with sink(b, max_block_ms=50, retry_backoff_ms=1) as s:
        s.recover(None)
        write(s, 1)
        s.pre_commit(1)
        b.faults[EndTxnRequest] += [ErrorCode.NOT_COORDINATOR] * 1000
        with pytest.raises(RetriableTransactionError):
            s.commit(1)
        b.faults.clear()
        s.commit(1)
    assert counts(b) == [1]


def test_records_that_were_not_written_fail_the_checkpoint(b: TransactionBroker) -> None:
    with sink(b) as s:
        s.recover(None)
        write(s, 1)
        state = s.pre_commit(1)
        b.faults[ProduceRequest] += [ErrorCode.INVALID_RECORD]
        write(s, 2)
        with pytest.raises(AbortableTransactionError, match="INVALID_RECORD"):
            s.pre_commit(2)
        s.recover(state)
        write(s, 3)
        s.pre_commit(2)
        s.commit(2)
    assert counts(b) == [1, 3]


def test_an_abort_drops_only_what_no_checkpoint_holds(b: TransactionBroker) -> None:
    with sink(b) as s:
        s.recover(None)
        write(s, 1)
        s.pre_commit(1)
        write(s, 2)
        s.abort()
        s.commit(1)
        write(s, 3)
        s.pre_commit(2)
        s.commit(2)
    assert counts(b) == [1, 3]


def test_a_checkpoint_without_records_holds_nothing(b: TransactionBroker) -> None:
    with sink(b) as s:
        s.recover(None)
        assert s.pre_commit(1).prepared == ()
        s.begin()
        assert s.pre_commit(2).prepared == ()
        s.commit(2)
    assert b.served(EndTxnRequest) == []


def test_each_worker_commits_and_aborts_its_own(b: TransactionBroker) -> None:
    """Three workers become two: worker 0 stands for worker 2, too."""
    states = []
    sinks = [sink(b, worker=n, workers=3) for n in range(3)]
    for number, s in enumerate(sinks, 1):
        s.recover(None)
        write(s, number)
        states.append(s.pre_commit(1))
        write(s, 10)
        s.flush()
    assert len(open_ids(b)) == 6
    with sink(b, worker=0, workers=2) as zero, sink(b, worker=1, workers=2) as one:
        zero.recover(states)
        assert sorted(counts(b)) == [1, 3]
        assert open_ids(b) == ["job-1-0", "job-1-1"]
        one.recover([state.to_json() for state in states])
        assert sorted(counts(b)) == [1, 2, 3] and open_ids(b) == []
    for s in sinks:
        s.close()


def test_other_prefixes_are_left_alone(b: TransactionBroker) -> None:
    with CheckpointedProducer(b.bootstrap, transactional_id_prefix="job-0") as other:
        other.recover(None)
        write(other, 1)
        other.flush()
        with sink(b) as s:
            s.recover(None)
        assert open_ids(b) == ["job-0-0-0"]


def test_a_coordinator_that_loads_is_asked_again(b: TransactionBroker) -> None:
    b.faults[ListTransactionsRequest] += [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 2
    with sink(b) as s:
        s.recover(None)
    assert len(b.served(ListTransactionsRequest)) == 3


def test_wrong_calls_are_named(b: TransactionBroker) -> None:
    with sink(b) as s:
        with pytest.raises(IllegalStateError, match=r"call recover\(\) first"):
            s.send("t", b"v")
        s.recover(None)
        with pytest.raises(UsageError, match=r"call pre_commit\(6\) first; there was none yet"):
            s.commit(6)
        s.pre_commit(5)
        with pytest.raises(UsageError, match="the last one was 5"):
            s.pre_commit(5)
        with pytest.raises(UsageError, match=r"call pre_commit\(6\) first; the last one was of 5"):
            s.commit(6)
        with pytest.raises(OptionError, match="give CheckpointStates"):
            s.recover(7)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="no state of a checkpoint"):
            s.recover("{}")
    with pytest.raises(ClosedError):
        s.pre_commit(6)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"linger": 5}, "CheckpointedProducer has no option 'linger'.*linger_ms"),
        ({"transactional_id": "x"}, "give transactional_id_prefix"),
        ({"acks": 1}, 'needs acks="all"'),
        ({"worker": 1}, "worker is 1"),
        ({"transactional_id_prefix": ""}, "transactional_id_prefix is empty"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], match: str) -> None:
    arguments = {"transactional_id_prefix": "job", **options}
    with pytest.raises(UsageError, match=match):
        CheckpointedProducer("127.0.0.1:1", **arguments)


def test_a_state_is_the_same_after_json() -> None:
    state = CheckpointState(2, 7, 3)
    assert CheckpointState.from_json(state.to_json()) == state


def test_a_state_of_a_newer_headwater_is_refused() -> None:
    text = CheckpointState(2, 7, 3).to_json()
    with pytest.raises(UsageError, match="no state of a checkpoint: its format is 2"):
        CheckpointState.from_json(text.replace('"format": 1', '"format": 2'))
