"""Requests to a transactional id: the table of states, events and replies."""

from __future__ import annotations

from itertools import product
from uuid import UUID

import pytest

from headwater.errors import ErrorCode
from headwater_broker.coordinator.transaction.add_partitions import (
    add_partitions,
    verify_partitions,
)
from headwater_broker.coordinator.transaction.end_transaction import complete, end_transaction
from headwater_broker.coordinator.transaction.id_expiration import expire
from headwater_broker.coordinator.transaction.init_producer_id import ProducerInit, init_producer
from headwater_broker.coordinator.transaction.outcomes import (
    Busy,
    Changed,
    Refused,
    Unchanged,
    Verified,
)
from headwater_broker.coordinator.transaction.producer_fencing import fence
from headwater_broker.coordinator.transaction.states import (
    TRANSITIONS,
    TransactionEvent,
    TransactionState,
    TransactionTransitionError,
    next_state,
)
from headwater_broker.coordinator.transaction.timeouts import time_out
from headwater_broker.coordinator.transaction.transaction import (
    EPOCH_MAX,
    LAST_EPOCH,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMEOUT_MS,
    TRANSACTION_V2,
    ProducerIdentity,
    Transaction,
)

S = TransactionState
PID, FRESH, EPOCH = 7, 99, 5
TOPIC_ID = UUID(int=1)
PARTITION = ("flights", 0)
PARTITIONS = {PARTITION: TOPIC_ID}
CURRENT = ProducerIdentity(PID, EPOCH)
PREPARING = (S.PREPARE_COMMIT, S.PREPARE_ABORT)
COMPLETE = (S.COMPLETE_COMMIT, S.COMPLETE_ABORT)
IDLE = (S.EMPTY, *COMPLETE)


def known(state: S, **more: object) -> Transaction:
    has_partitions = state is S.ONGOING or state in PREPARING
    made = Transaction(
        transactional_id="t",
        producer_id=PID,
        producer_epoch=EPOCH,
        state=state,
        timeout_ms=60_000,
        start_ms=-1 if state is S.EMPTY else 1_000,
        last_update_ms=1_000,
        partitions=PARTITIONS if has_partitions else {},
    )
    return made._replace(**more)  # type: ignore[arg-type]


def init(state: Transaction | None, expected: ProducerIdentity | None = None) -> object:
    request = ProducerInit(
        transactional_id="t", timeout_ms=30_000, fresh_producer_id=FRESH, expected=expected
    )
    return init_producer(state, request, 2_000)


def end(
    state: Transaction | None,
    producer: ProducerIdentity = CURRENT,
    *,
    commit: bool = True,
    version: int = TRANSACTION_V2,
) -> object:
    return end_transaction(
        state,
        producer,
        commit=commit,
        client_version=version,
        fresh_producer_id=FRESH,
        now_ms=2_000,
    )


# --- InitProducerId


def test_a_new_transactional_id_begins_with_epoch_0() -> None:
    for expected in (None, CURRENT):
        made = init(None, expected)
        assert isinstance(made, Changed)
        assert made.identity == ProducerIdentity(FRESH, 0)
        assert (made.after.state, made.after.timeout_ms) == (S.EMPTY, 30_000)


@pytest.mark.parametrize("state", IDLE)
def test_a_new_producer_raises_the_epoch_and_fences_the_last(state: S) -> None:
    made = init(known(state, last_producer_epoch=4))
    assert isinstance(made, Changed) and not made.then_retry
    assert made.identity == ProducerIdentity(PID, EPOCH + 1)
    assert made.after.last_producer_epoch == NO_EPOCH, "no request of the last producer is a retry"
    assert (made.after.state, dict(made.after.partitions)) == (S.EMPTY, {})


@pytest.mark.parametrize("state", IDLE)
def test_a_recovering_producer_raises_its_epoch_once(state: S) -> None:
    made = init(known(state), CURRENT)
    assert isinstance(made, Changed)
    assert made.identity == ProducerIdentity(PID, EPOCH + 1)
    again = init(made.after, CURRENT)
    assert again == Unchanged(ProducerIdentity(PID, EPOCH + 1)), "its reply was lost"


@pytest.mark.parametrize("state", IDLE)
@pytest.mark.parametrize("expected", [(PID, EPOCH - 1), (PID, EPOCH + 1), (PID + 1, EPOCH)])
def test_another_producer_is_fenced(state: S, expected: tuple[int, int]) -> None:
    assert init(known(state), ProducerIdentity(*expected)) == Refused(ErrorCode.PRODUCER_FENCED)


def test_a_retry_after_a_newer_producer_is_fenced() -> None:
    bumped = init(known(S.EMPTY), CURRENT)
    assert isinstance(bumped, Changed)
    newer = init(bumped.after)
    assert isinstance(newer, Changed)
    assert init(newer.after, CURRENT) == Refused(ErrorCode.PRODUCER_FENCED)


@pytest.mark.parametrize("state", IDLE)
def test_an_exhausted_epoch_rotates_the_producer_id(state: S) -> None:
    at_end = known(state, producer_epoch=LAST_EPOCH)
    made = init(at_end)
    assert isinstance(made, Changed)
    assert made.identity == ProducerIdentity(FRESH, 0)
    assert made.after.previous_producer_id == PID
    recovering = ProducerIdentity(PID, LAST_EPOCH)
    rotated = init(at_end, recovering)
    assert isinstance(rotated, Changed) and rotated.identity == ProducerIdentity(FRESH, 0)
    assert init(rotated.after, recovering) == Unchanged(ProducerIdentity(FRESH, 0))
    assert init(made.after, recovering) == Refused(ErrorCode.PRODUCER_FENCED), "a newer one came"


def test_a_newer_producer_aborts_the_open_transaction_first() -> None:
    made = init(known(S.ONGOING))
    assert isinstance(made, Changed) and made.then_retry
    assert made.after.state is S.PREPARE_ABORT
    assert made.after.producer_epoch == EPOCH + 1, "the open producer is fenced"
    done = complete(made.after, 3_000)
    last = init(done)
    assert isinstance(last, Changed)
    assert last.identity == ProducerIdentity(PID, EPOCH + 2)


def test_a_fence_at_the_last_epoch_leads_to_a_rotation() -> None:
    fenced = fence(known(S.ONGOING, producer_epoch=LAST_EPOCH), 2_000, keeps_last=False)
    assert fenced.producer_epoch == LAST_EPOCH + 1
    made = init(complete(fenced, 3_000))
    assert isinstance(made, Changed) and made.identity == ProducerIdentity(FRESH, 0)


@pytest.mark.parametrize("state", IDLE)
def test_no_request_may_use_the_epoch_that_only_fences(state: S) -> None:
    """A transaction of epoch 32767 could not be aborted: no epoch is left to fence it with, and the
    record of the next one cannot be written."""
    at_max = known(state, producer_epoch=EPOCH_MAX)
    forged = ProducerIdentity(PID, EPOCH_MAX)
    fenced = Refused(ErrorCode.PRODUCER_FENCED)
    assert add_partitions(at_max, forged, PARTITIONS, 2_000) == fenced
    assert end(at_max, forged, commit=False) == fenced


@pytest.mark.parametrize("version", [0, TRANSACTION_V2])
def test_a_commit_after_a_timeout_at_the_last_epoch_is_abortable_too(version: int) -> None:
    """Flink's committer skips PRODUCER_FENCED, and would lose what a checkpoint has promised."""
    late = time_out(known(S.ONGOING, producer_epoch=LAST_EPOCH), 2_000)
    exhausted = ProducerIdentity(PID, LAST_EPOCH)
    for state in (late, complete(late, 3_000)):
        lost = Refused(ErrorCode.TRANSACTION_ABORTABLE)
        assert end(state, exhausted, version=version) == lost
        fenced = Refused(ErrorCode.PRODUCER_FENCED)
        assert end(state, exhausted, commit=False, version=version) == fenced


def test_a_recovering_producer_at_the_last_epoch_gets_a_new_id_and_its_retry_the_same() -> None:
    fenced = fence(known(S.ONGOING, producer_epoch=LAST_EPOCH), 2_000, keeps_last=True)
    exhausted = ProducerIdentity(PID, LAST_EPOCH)
    made = init(complete(fenced, 3_000), exhausted)
    assert isinstance(made, Changed) and made.identity == ProducerIdentity(FRESH, 0)
    assert init(made.after, exhausted) == Unchanged(made.identity)


@pytest.mark.parametrize("state", PREPARING)
def test_markers_on_their_way_are_waited_for(state: S) -> None:
    busy = known(state)
    assert init(busy) == Busy()
    assert init(busy, ProducerIdentity(1, 1)) == Busy()
    assert add_partitions(busy, CURRENT, PARTITIONS, 2_000) == Busy()
    assert verify_partitions(busy, CURRENT, frozenset(PARTITIONS)) == Busy()


# --- AddPartitionsToTxn


@pytest.mark.parametrize("state", IDLE)
def test_the_first_partition_opens_a_transaction(state: S) -> None:
    made = add_partitions(known(state), CURRENT, PARTITIONS, 2_000)
    assert isinstance(made, Changed)
    after = made.after
    assert (after.state, after.start_ms, dict(after.partitions)) == (S.ONGOING, 2_000, PARTITIONS)
    assert after.deadline_ms == 62_000


def test_more_partitions_join_and_known_ones_write_nothing() -> None:
    more = {("weather", 1): UUID(int=2)}
    made = add_partitions(known(S.ONGOING), CURRENT, more, 2_000)
    assert isinstance(made, Changed)
    assert dict(made.after.partitions) == {**PARTITIONS, **more}
    assert made.after.start_ms == 1_000, "the timeout runs from the begin"
    assert add_partitions(made.after, CURRENT, PARTITIONS, 3_000) == Unchanged(CURRENT)


def test_a_topic_made_anew_is_enlisted_anew() -> None:
    made = add_partitions(known(S.ONGOING), CURRENT, {PARTITION: UUID(int=9)}, 2_000)
    assert isinstance(made, Changed) and made.after.partitions[PARTITION] == UUID(int=9)


@pytest.mark.parametrize("state", [*IDLE, S.ONGOING])
def test_who_may_not_enlist(state: S) -> None:
    other, old = ProducerIdentity(PID + 1, EPOCH), ProducerIdentity(PID, EPOCH - 1)
    mapping, fenced = ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.PRODUCER_FENCED
    for producer, code in ((other, mapping), (old, fenced)):
        assert add_partitions(known(state), producer, PARTITIONS, 2_000) == Refused(code)
        assert verify_partitions(known(state), producer, frozenset(PARTITIONS)) == Refused(code)
    assert add_partitions(None, CURRENT, PARTITIONS, 2_000) == Refused(mapping)
    assert verify_partitions(None, CURRENT, frozenset(PARTITIONS)) == Refused(mapping)


def test_verification_names_the_partitions_that_are_not_enlisted() -> None:
    asked = frozenset([PARTITION, ("other", 0)])
    assert verify_partitions(known(S.ONGOING), CURRENT, asked) == Verified(
        {PARTITION: ErrorCode.NONE, ("other", 0): ErrorCode.TRANSACTION_ABORTABLE}
    )
    for state in IDLE:
        left_over = known(state, partitions=PARTITIONS)
        assert verify_partitions(left_over, CURRENT, frozenset(PARTITIONS)) == Verified(
            {PARTITION: ErrorCode.TRANSACTION_ABORTABLE}
        )


# --- EndTxn


@pytest.mark.parametrize("commit", [True, False])
def test_version_2_raises_the_epoch_with_the_outcome(commit: bool) -> None:
    made = end(known(S.ONGOING), commit=commit)
    assert isinstance(made, Changed)
    assert made.identity == ProducerIdentity(PID, EPOCH + 1) == made.after.identity
    assert made.after.state is (S.PREPARE_COMMIT if commit else S.PREPARE_ABORT)
    for state in (made.after, complete(made.after, 3_000)):
        assert end(state, CURRENT, commit=commit) == Unchanged(made.identity), "the reply was lost"
        assert end(state, CURRENT, commit=not commit) == Refused(ErrorCode.INVALID_TXN_STATE)
    assert end(made.after, made.identity, commit=commit) == Busy(), "the next transaction's end"


@pytest.mark.parametrize("commit", [True, False])
def test_version_1_keeps_the_epoch(commit: bool) -> None:
    made = end(known(S.ONGOING), commit=commit, version=1)
    assert isinstance(made, Changed) and made.identity == CURRENT
    for state in (made.after, complete(made.after, 3_000)):
        assert end(state, commit=commit, version=1) == Unchanged(CURRENT)
        refused = end(state, commit=not commit, version=1)
        assert refused == Refused(ErrorCode.INVALID_TXN_STATE)


def test_version_2_rotates_an_exhausted_producer() -> None:
    last = ProducerIdentity(PID, LAST_EPOCH)
    made = end(known(S.ONGOING, producer_epoch=LAST_EPOCH), last)
    assert isinstance(made, Changed)
    assert made.identity == ProducerIdentity(FRESH, 0)
    assert made.after.identity == ProducerIdentity(PID, LAST_EPOCH + 1), "the markers' epoch"
    assert end(made.after, last) == Unchanged(made.identity)
    assert add_partitions(made.after, made.identity, PARTITIONS, 2_500) == Busy()
    done = complete(made.after, 3_000)
    assert done.identity == ProducerIdentity(FRESH, 0)
    assert (done.previous_producer_id, done.next_producer_id) == (PID, NO_PRODUCER_ID)
    assert end(done, last) == Unchanged(made.identity)
    opened = add_partitions(done, made.identity, PARTITIONS, 4_000)
    assert isinstance(opened, Changed) and opened.after.state is S.ONGOING


@pytest.mark.parametrize("state", IDLE)
def test_end_without_a_begin(state: S) -> None:
    wrong = Refused(ErrorCode.INVALID_TXN_STATE)
    assert end(known(state), commit=True) == wrong
    aborted = end(known(state), commit=False)
    assert isinstance(aborted, Changed), "its first batch may be on its way to the coordinator"
    assert aborted.after.state is S.PREPARE_ABORT and not aborted.after.partitions
    assert aborted.identity == ProducerIdentity(PID, EPOCH + 1)
    if state is S.EMPTY:
        assert end(known(state), commit=True, version=1) == wrong
        assert end(known(state), commit=False, version=1) == wrong


@pytest.mark.parametrize("state", [*IDLE, S.ONGOING, *PREPARING])
@pytest.mark.parametrize("version", [1, 2])
def test_who_may_not_end(state: S, version: int) -> None:
    newer = known(state, last_producer_epoch=NO_EPOCH)
    other, old = ProducerIdentity(PID + 1, EPOCH), ProducerIdentity(PID, EPOCH - 1)
    mapping, fenced = ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.PRODUCER_FENCED
    assert end(newer, other, version=version) == Refused(mapping)
    assert end(newer, old, version=version) == Refused(fenced)
    assert end(None, version=version) == Refused(mapping)


def test_a_commit_that_a_timeout_overtook_is_fenced() -> None:
    """KAFKA-20785: INVALID_TXN_STATE would tell the client to go on."""
    fenced = fence(known(S.ONGOING), 2_000, keeps_last=True)
    for state in (fenced, complete(fenced, 3_000)):
        assert end(state) == Refused(ErrorCode.PRODUCER_FENCED)
        assert end(state, version=1) == Refused(ErrorCode.PRODUCER_FENCED)


# --- states


def test_only_open_transactions_time_out() -> None:
    assert known(S.ONGOING).deadline_ms == 61_000
    assert known(S.ONGOING, timeout_ms=NO_TIMEOUT_MS).deadline_ms is None, "two-phase commit"
    assert {known(s).deadline_ms for s in (*IDLE, *PREPARING)} == {None}


def test_every_state_and_event_moves_by_the_table_or_is_an_error() -> None:
    for state, event in product(TransactionState, TransactionEvent):
        if (state, event) in TRANSITIONS:
            assert next_state("t", state, event) is TRANSITIONS[state, event]
        else:
            with pytest.raises(TransactionTransitionError, match=state.label):
                next_state("t", state, event)


def test_only_idle_ids_expire() -> None:
    assert {s for s in S if s.is_idle} == set(IDLE)
    for state in IDLE:
        assert expire(known(state), 2_000).state is S.DEAD
    for state in (S.ONGOING, *PREPARING):
        with pytest.raises(TransactionTransitionError):
            expire(known(state), 2_000)


def test_labels_are_kafkas() -> None:
    assert [s.label for s in S] == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    ]


# -- two-phase commits (KIP-939)

PREPARED = {"timeout_ms": NO_TIMEOUT_MS}


def keep(state: Transaction, expected: ProducerIdentity | None = None) -> Changed:
    request = ProducerInit(
        transactional_id="t",
        timeout_ms=NO_TIMEOUT_MS,
        fresh_producer_id=FRESH,
        expected=expected,
        keep_prepared=True,
    )
    outcome = init_producer(state, request, 2_000)
    assert isinstance(outcome, Changed)
    return outcome


def ended(state: Transaction, producer: ProducerIdentity) -> Changed:
    outcome = end(state, producer)
    assert isinstance(outcome, Changed)
    return outcome


def test_a_kept_transaction_stays_open_and_only_the_next_identity_ends_it() -> None:
    kept = keep(known(S.ONGOING, **PREPARED))
    following = ProducerIdentity(PID, EPOCH + 1)
    assert (kept.identity, kept.ongoing, kept.then_retry) == (following, CURRENT, False)
    assert (kept.after.state, kept.after.identity) == (S.ONGOING, CURRENT)
    assert end(kept.after, CURRENT) == Refused(ErrorCode.PRODUCER_FENCED)
    assert end(kept.after, following, version=1) == Refused(ErrorCode.INVALID_TXN_STATE)
    outcome = ended(kept.after, following)
    assert outcome.after.identity == ProducerIdentity(PID, EPOCH + 1), "the epoch of the markers"
    assert outcome.identity == ProducerIdentity(PID, EPOCH + 2)
    done = complete(outcome.after, 3_000)
    assert done.identity == outcome.identity
    for state in (outcome.after, done):
        assert end(state, following) == Unchanged(outcome.identity), "a retry"
        assert end(state, following, commit=False) == Refused(ErrorCode.INVALID_TXN_STATE)
        assert end(state, CURRENT) == Refused(ErrorCode.PRODUCER_FENCED)


def test_a_kept_transaction_takes_no_more_partitions() -> None:
    kept = keep(known(S.ONGOING, **PREPARED))
    more = {("weather", 0): TOPIC_ID}
    fenced, late = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE
    assert add_partitions(kept.after, CURRENT, more, 2_000) == Refused(fenced)
    assert add_partitions(kept.after, kept.identity, more, 2_000) == Refused(late)
    verified = verify_partitions(kept.after, CURRENT, frozenset(PARTITIONS))
    assert verified == Refused(fenced), "the old producer is a zombie"


def test_each_keep_fences_the_one_before() -> None:
    first = keep(known(S.ONGOING, **PREPARED))
    second = keep(first.after)
    assert second.identity == ProducerIdentity(PID, EPOCH + 2)
    assert second.ongoing == CURRENT
    assert end(second.after, first.identity) == Refused(ErrorCode.PRODUCER_FENCED)
    expected = keep(second.after, second.identity)
    assert expected.identity.epoch == EPOCH + 3
    stale = init(second.after, first.identity)
    assert stale == Refused(ErrorCode.PRODUCER_FENCED)


def test_a_keep_at_the_last_epoch_gets_a_new_producer_id() -> None:
    state = known(S.ONGOING, producer_epoch=LAST_EPOCH, **PREPARED)
    kept = keep(state)
    assert kept.identity == ProducerIdentity(FRESH, 0)
    outcome = ended(kept.after, kept.identity)
    assert outcome.after.identity == ProducerIdentity(PID, LAST_EPOCH + 1)
    assert outcome.identity == ProducerIdentity(FRESH, 1)
    done = complete(outcome.after, 3_000)
    assert (done.identity, done.previous_producer_id) == (outcome.identity, PID)
    assert end(done, kept.identity) == Unchanged(outcome.identity)


def test_an_init_that_does_not_keep_aborts_and_fences_every_earlier_identity() -> None:
    kept = keep(known(S.ONGOING, **PREPARED))
    outcome = init(kept.after)
    assert isinstance(outcome, Changed)
    assert outcome.then_retry and outcome.after.state is S.PREPARE_ABORT
    aborted = complete(outcome.after, 3_000)
    for late in (CURRENT, kept.identity):
        assert end(aborted, late) == Refused(ErrorCode.PRODUCER_FENCED)
        fenced = add_partitions(aborted, late, PARTITIONS, 3_000)
        assert fenced == Refused(ErrorCode.PRODUCER_FENCED)


def test_only_prepared_transactions_are_kept() -> None:
    aborted = keep(known(S.ONGOING))
    assert aborted.after.state is S.PREPARE_ABORT and aborted.then_retry
    assert keep(known(S.EMPTY)).ongoing is None


def test_a_rotation_without_a_producer_id_in_reserve_is_asked_for_again() -> None:
    outcome = end_transaction(
        known(S.ONGOING, producer_epoch=LAST_EPOCH),
        ProducerIdentity(PID, LAST_EPOCH),
        commit=True,
        client_version=TRANSACTION_V2,
        fresh_producer_id=NO_PRODUCER_ID,
        now_ms=2_000,
    )
    assert outcome == Refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
