"""The state machine of transactional producers, and the sequences of a transactional partition."""

from __future__ import annotations

import pytest

from headwater.client.core.partition_queue import FailureAction, PartitionQueue, ProducerBatch
from headwater.client.core.transaction_states import (
    TRANSITIONS,
    Event,
    Phase,
    Request,
    TransactionState,
    Verdict,
    verdict,
)
from headwater.client.errors import (
    AbortableTransactionError,
    FatalTransactionError,
    IllegalStateError,
    ProducerFencedError,
    kafka_error,
)
from headwater.client.futures import BatchCompletion
from headwater.errors import ErrorCode, KafkaError

FENCED = kafka_error(ErrorCode.INVALID_PRODUCER_EPOCH, "EndTxn")
REFUSED = KafkaError(ErrorCode.INVALID_RECORD, "produce to t-0")


def state_in(phase: Phase) -> TransactionState:
    state = TransactionState("x", 60_000)
    state.phase = phase
    return state


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("event", Event)
def test_what_is_not_in_the_table_is_refused(phase: Phase, event: Event) -> None:
    state = state_in(phase)
    following = TRANSITIONS.get((phase, event))
    assert state.allows(event) == (following is not None)
    if following is None:
        with pytest.raises(IllegalStateError, match="call: the producer of transactional id 'x'"):
            state.move(event, "call")
        assert state.phase is phase
    else:
        state.move(event, "call")
        assert state.phase is following


def test_only_a_commit_or_an_abort_ends_a_transaction() -> None:
    """And nothing leaves the fatal error; a commit that may be decided cannot be aborted."""
    ready = {phase for (phase, _), to in TRANSITIONS.items() if to is Phase.READY}
    assert ready == {Phase.UNINITIALIZED, Phase.COMMITTING, Phase.ABORTING}
    assert {to for (phase, _), to in TRANSITIONS.items() if phase is Phase.FATAL_ERROR} == {
        Phase.FATAL_ERROR
    }
    assert (Phase.COMMITTING, Event.ABORT) not in TRANSITIONS
    assert {phase for (phase, event) in TRANSITIONS if event is Event.ABORT} == {
        Phase.IN_TRANSACTION,
        Phase.FLUSHING,
        Phase.PREPARED,
        Phase.ABORTABLE_ERROR,
        Phase.ABORTING,
    }


def test_the_first_error_is_kept_until_the_transaction_has_ended() -> None:
    state = state_in(Phase.IN_TRANSACTION)
    assert state.abortable(REFUSED, "send") and not state.abortable(FENCED, "send")
    with pytest.raises(AbortableTransactionError, match="INVALID_RECORD"):
        state.check_send()
    state.move(Event.ABORT)
    state.ended()
    assert state.error is None and state.needs_new_epoch
    state.identify(5, 1)
    state.begin(1)
    state.check_send()


def test_a_fatal_error_stays() -> None:
    state = state_in(Phase.ABORTING)
    assert state.fatal(FENCED, "abort_transaction()") and not state.fatal(REFUSED, "send")
    for event in Event:
        if event is not Event.FATAL:
            with pytest.raises(ProducerFencedError, match="60000 ms"):
                state.move(event)
    assert not state.abortable(REFUSED, "send")


def test_other_fatal_errors_name_their_remedy() -> None:
    state = state_in(Phase.UNINITIALIZED)
    state.fatal(KafkaError(ErrorCode.INVALID_TRANSACTION_TIMEOUT), "init_transactions()")
    with pytest.raises(FatalTransactionError, match=r"\(60000\) is more than the brokers'"):
        state.move(Event.BEGIN)


@pytest.mark.parametrize(
    ("request_kind", "code", "expected"),
    [
        (Request.INIT, ErrorCode.CONCURRENT_TRANSACTIONS, Verdict.RETRY_SOON),
        (Request.END, ErrorCode.NOT_COORDINATOR, Verdict.FIND_COORDINATOR),
        (Request.END, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, Verdict.RETRY),
        (Request.END, ErrorCode.TRANSACTION_ABORTABLE, Verdict.ABORT),
        (Request.END, ErrorCode.INVALID_PRODUCER_ID_MAPPING, Verdict.ABORT),
        (Request.END, ErrorCode.INVALID_PRODUCER_EPOCH, Verdict.FATAL),
        (Request.END, ErrorCode.INVALID_TXN_STATE, Verdict.FATAL),
        (Request.END, ErrorCode.UNKNOWN_SERVER_ERROR, Verdict.FATAL),
        (Request.PRODUCE, ErrorCode.INVALID_PRODUCER_EPOCH, Verdict.ABORT),
        (Request.PRODUCE, ErrorCode.PRODUCER_FENCED, Verdict.FATAL),
        (Request.PRODUCE, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, Verdict.FATAL),
        (Request.PRODUCE, ErrorCode.TOPIC_AUTHORIZATION_FAILED, Verdict.ABORT),
        (Request.COMMIT_OFFSETS, ErrorCode.ILLEGAL_GENERATION, Verdict.ABORT),
        (Request.COMMIT_OFFSETS, ErrorCode.GROUP_AUTHORIZATION_FAILED, Verdict.ABORT),
        (Request.COMMIT_OFFSETS, ErrorCode.INVALID_PRODUCER_EPOCH, Verdict.FATAL),
        (Request.ADD_PARTITIONS, ErrorCode.TOPIC_AUTHORIZATION_FAILED, Verdict.ABORT),
    ],
)
def test_what_follows_from_an_error_code(
    request_kind: Request, code: ErrorCode, expected: Verdict
) -> None:
    assert verdict(request_kind, code) is expected


def sent(queue: PartitionQueue, epoch: int) -> ProducerBatch:
    batch = ProducerBatch(queue, BatchCompletion(lambda: 0.0), 0.0)
    batch.count = 3
    queue.sealed.append(batch)
    return queue.next_batch(7, epoch)


def failed(queue: PartitionQueue, batch: ProducerBatch, code: ErrorCode) -> FailureAction:
    return queue.failed(batch, KafkaError(code), 0.0, retry_until=10.0, backoff_s=0.1)


def test_sequences_begin_anew_with_the_coordinators_epoch_only() -> None:
    queue = PartitionQueue("t", 0, is_idempotent=True, is_transactional=True)
    rows = []
    for epoch in (0, 0, 4):
        batch = sent(queue, epoch)
        rows.append((batch.producer_epoch, batch.sequence))
        queue.succeeded(batch)
    assert rows == [(0, 0), (0, 3), (4, 0)]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    ],
)
def test_a_state_that_the_broker_has_lost_fails_the_batch(code: ErrorCode) -> None:
    """An idempotent producer begins its next epoch by itself; a transactional one must not."""
    queue = PartitionQueue("t", 0, is_idempotent=True, is_transactional=True)
    assert failed(queue, sent(queue, 0), code) is FailureAction.FAIL
    assert queue.needs_reset and not queue.wants_new_producer
    plain = PartitionQueue("t", 0, is_idempotent=True)
    assert failed(plain, sent(plain, 0), code) is FailureAction.RETRY


def test_a_batch_behind_one_that_is_retried_is_retried() -> None:
    queue = PartitionQueue("t", 0, is_idempotent=True, is_transactional=True)
    first, second = sent(queue, 0), sent(queue, 0)
    assert failed(queue, first, ErrorCode.NOT_LEADER_OR_FOLLOWER) is FailureAction.RETRY
    assert failed(queue, second, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER) is FailureAction.RETRY
    assert [queue.next_batch(7, 0) for _ in range(2)] == [first, second]
