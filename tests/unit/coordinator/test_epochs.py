"""The coordinator of epoch transactions: fences, deadlines, slots, capacity, administration."""

from __future__ import annotations

from uuid import UUID

import pytest

from headwater.errors import ErrorCode, KafkaError
from headwater.wire.epoch_values import EpochState, EpochStatus
from headwater.wire.sink_names import coordinator_key
from headwater_broker.coordinator.common.shard import Decision
from headwater_broker.coordinator.transaction.epoch_values import (
    MARKERS_MAX,
    RETIRED_MAX,
    SLOTS_MAX,
    check_sink,
)
from headwater_broker.coordinator.transaction.records import read_transaction, transaction_key
from headwater_broker.coordinator.transaction.states import TransactionState
from headwater_broker.coordinator.transaction.transaction import EPOCH_MAX, LAST_EPOCH
from headwater_broker.coordinator.transaction.waiting_requests import Unrecorded
from unit.coordinator.epoch_log import (
    CONFIG,
    FLIGHTS,
    NEWER_RUN,
    NEWEST_RUN,
    RUN,
    TOPIC_ID,
    EpochLog,
    commit_empty,
    named,
    writer,
)

S = EpochStatus
COMMITTING, ABORTING, PREPARED = EpochState.COMMITTING, EpochState.ABORTING, EpochState.PREPARED


# -- names


@pytest.mark.parametrize(
    ("transactional_id", "key"),
    [
        ("__hw.alerts.0", "__hw.alerts"),
        ("__hw.a.b.12", "__hw.a.b"),
        ("__hw.alerts", "__hw.alerts"),
        ("__hw.a.b", "__hw.a.b"),
        ("__hw.7", "__hw.7"),
        ("__hw", "__hw"),
        ("plain.7", "plain.7"),
    ],
)
def test_a_participant_has_the_coordinator_of_its_sink(transactional_id: str, key: str) -> None:
    assert coordinator_key(transactional_id) == key


@pytest.mark.parametrize("sink", ["", "a b", "a.7", "x" * 250])
def test_a_sink_that_would_be_taken_for_a_participant_is_refused(sink: str) -> None:
    with pytest.raises(KafkaError) as refused:
        check_sink(sink)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


# -- joining


def test_a_repeated_join_gets_the_same_participant_and_another_attempt_its_own() -> None:
    log, of = EpochLog(), writer()
    one = log.joined(of, 0, 5)
    assert log.joined(of, 0, 5) == one
    other = log.joined(of, 0, 6)
    assert other.transactional_id != one.transactional_id
    wider = log.join(of, 0, 5, {("flights", 1): TOPIC_ID}).participant
    assert wider is not None
    assert wider.identity == one.identity
    assert set(wider.partitions) == {("flights", 0), ("flights", 1)}


def test_a_slot_is_used_again_once_its_epoch_is_complete() -> None:
    log, of = EpochLog(), writer()
    one = log.joined(of)
    log.start_commit(of, named(0, one))
    following = log.joined(writer(1, 2))
    assert following.transactional_id != one.transactional_id, "its markers are on their way"
    log.write_markers()
    log.commit(writer(1, 2), named(0, following))
    third = log.joined(writer(2, 3))
    assert third.transactional_id == one.transactional_id
    assert third.identity == (one.producer_id, one.producer_epoch + 1)


def test_an_exhausted_producer_is_replaced() -> None:
    log = EpochLog()
    first = log.joined(writer())
    last = first._replace(producer_epoch=LAST_EPOCH)
    record = log.shard.epochs._store(last)  # 32,766 epochs later
    log.take(_of(record))
    assert log.commit(writer(), named(0, last)).status is S.COMMITTED
    assert log.shard.transactions[last.transactional_id].producer_epoch == EPOCH_MAX
    following = log.joined(writer(1, 2))
    assert following.transactional_id == first.transactional_id
    assert following.producer_id != first.producer_id
    assert (following.producer_epoch, following.previous_producer_id) == (0, first.producer_id)


def test_the_third_epoch_in_flight_waits() -> None:
    log = EpochLog()
    for epoch in (0, 1):
        of = writer(epoch, epoch + 1)
        log.start_commit(of, named(0, log.joined(of)))
    assert log.join(writer(2, 3)).status is S.BUSY
    log.write_markers()
    assert log.join(writer(2, 3)).status is S.OPEN


def test_a_busy_newer_run_has_fenced_the_older_one_all_the_same() -> None:
    log = EpochLog()
    log.start_commit(writer(), named(0, log.joined(writer())))
    old = writer(1, 2)
    one = log.joined(old)
    assert log.join(writer(1, 3, NEWER_RUN)).status is S.BUSY
    assert log.commit(old, named(0, one)).status is S.FENCED
    log.write_markers()
    assert log.committed(one) == [False]


def test_an_epoch_has_no_more_participants_than_a_sink_has_slots() -> None:
    log, of = EpochLog(), writer()
    for task in range(SLOTS_MAX):
        log.joined(of, task, task)
    with pytest.raises(KafkaError, match="coalesce") as refused:
        log.join(of, SLOTS_MAX, SLOTS_MAX)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert log.joined(of, 7, 7), "a repeated join is none"


def test_slots_of_an_earlier_epoch_are_waited_for() -> None:
    log, of = EpochLog(), writer()
    joined = [log.joined(of, task, task) for task in range(SLOTS_MAX)]
    log.start_commit(of, *(named(task, one) for task, one in enumerate(joined)))
    assert log.join(writer(1, 2)).status is S.BUSY


def test_an_epoch_with_too_many_markers_is_refused() -> None:
    log, of = EpochLog(), writer()
    half = {("flights", index): TOPIC_ID for index in range(MARKERS_MAX // 2)}
    one, two = log.join(of, 0, 0, half).participant, log.join(of, 1, 1, half).participant
    assert one is not None
    assert two is not None
    with pytest.raises(KafkaError, match="coalesce"):
        log.join(of, 2, 2, FLIGHTS)
    refused = log.enlist(one, MARKERS_MAX)
    assert isinstance(refused, KafkaError)
    assert refused.code is ErrorCode.INVALID_TXN_STATE
    assert log.enlist(two, 0) == Unrecorded(two.identity), "it is enlisted already"


def test_partitions_are_enlisted_only_while_the_epoch_is_open() -> None:
    log, of = EpochLog(), writer()
    one = log.joined(of)
    assert log.enlist(one, 1) == one.identity
    log.prepare(of, named(0, one))
    refused = log.enlist(one, 2)
    assert isinstance(refused, KafkaError)
    assert refused.code is ErrorCode.INVALID_TXN_STATE
    log.resolve(of, COMMITTING)
    idle = log.shard.transactions[one.transactional_id]
    refused = log.enlist(idle, 2)
    assert isinstance(refused, KafkaError), "the next epoch's identity is not given out yet"
    refused = log.enlist(one, 2)
    assert isinstance(refused, KafkaError)
    assert refused.code is ErrorCode.PRODUCER_FENCED


# -- fences


def test_a_newer_run_aborts_the_open_epoch_and_fences_the_older_run() -> None:
    log, old = EpochLog(), writer(ticket=1)
    one = log.joined(old)
    new = writer(ticket=2, run=NEWER_RUN)
    again = log.joined(new)
    log.write_markers()
    assert log.committed(one) == [False]
    for status in (
        log.join(old, 1).status,
        log.commit(old, named(0, one)).status,
        log.abort(old).status,
        log.heartbeat(old),
        log.join(writer(ticket=3, run=RUN)).status,
        log.join(writer(ticket=2, run=NEWEST_RUN)).status,
    ):
        assert status is S.FENCED
    assert log.sink.retired == (RUN,)
    assert log.commit(new, named(0, again)).status is S.COMMITTED


def test_a_higher_ticket_of_the_same_run_gives_up_the_open_epoch() -> None:
    log, of = EpochLog(), writer()
    one = log.joined(of)
    log.joined(writer(ticket=2))
    log.write_markers()
    assert log.committed(one) == [False]
    assert log.commit(of, named(0, one)).status is S.FENCED
    assert log.sink.retired == ()


def test_the_latest_retired_runs_are_remembered() -> None:
    log = EpochLog()
    commit_empty(log, 0)
    for number in range(1, RETIRED_MAX + 3):
        log.abort(writer(1, number + 1, UUID(int=number)))
    assert len(log.sink.retired) == RETIRED_MAX
    assert RUN not in log.sink.retired
    assert log.sink.retired[-1] == UUID(int=RETIRED_MAX + 1)


def test_the_outcome_is_told_before_the_fence() -> None:
    log, old = EpochLog(), writer()
    one = log.joined(old)
    log.commit(old, named(0, one))
    assert log.join(writer(ticket=2, run=NEWER_RUN)).status is S.COMMITTED
    log.joined(writer(1, 3, NEWER_RUN))
    assert log.commit(old, named(0, one)).status is S.COMMITTED, "its reply was lost"
    assert log.abort(old).status is S.COMMITTED


def test_another_query_may_not_write_the_sink() -> None:
    log = EpochLog()
    commit_empty(log, 0)
    foreign = writer(1, 5, NEWER_RUN, owner="another")
    assert log.join(foreign).status is S.SINK_OWNED
    assert log.commit(foreign).status is S.SINK_OWNED
    assert log.abort(foreign).status is S.SINK_OWNED
    assert log.heartbeat(foreign) is S.SINK_OWNED
    assert log.resolve(foreign, ABORTING).status is S.SINK_OWNED
    assert log.sink.run == RUN


def test_a_rewound_checkpoint_is_refused_and_changes_nothing() -> None:
    log = EpochLog()
    commit_empty(log, 0, 1, 2)
    before = log.sink
    rewound = log.join(writer(1, 9, NEWER_RUN))
    assert (rewound.status, rewound.last_epoch) == (S.CHECKPOINT_MISMATCH, 2)
    assert log.commit(writer(0, 9, NEWER_RUN)).status is S.CHECKPOINT_MISMATCH
    assert log.sink == before
    assert log.join(writer(2, 9, NEWER_RUN)).status is S.COMMITTED


# -- deciding


@pytest.mark.parametrize(
    "wrong",
    [
        lambda p: [p, p._replace(slot=1)],
        lambda p: [p, p._replace(task=1)],
        lambda p: [p._replace(task=1)],
        lambda p: [p._replace(slot=4)],
        lambda p: [p._replace(producer_epoch=p.producer_epoch + 1)],
        lambda p: [p._replace(producer_id=1)],
    ],
    ids=["task twice", "slot twice", "task", "slot", "producer epoch", "producer id"],
)
def test_an_epoch_whose_participants_are_not_as_named_is_aborted(wrong) -> None:  # type: ignore[no-untyped-def]
    log, of = EpochLog(), writer()
    one = log.joined(of)
    assert log.commit(of, *wrong(named(0, one))).status is S.ABORTED
    log.write_markers()
    assert log.committed(one) == [False]
    assert log.commit(of, named(0, one)).status is S.ABORTED
    assert log.join(writer(ticket=2)).status is S.OPEN, "the epoch may be written again"


def test_participants_that_are_not_named_abort() -> None:
    log, of = EpochLog(), writer()
    fast, slow = log.joined(of, 0, 0), log.joined(of, 0, 1)
    assert log.commit(of, named(0, slow)).status is S.COMMITTED
    assert log.committed(fast, slow) == [False, True]


def test_a_commit_waits_for_the_markers_and_then_answers_without_them() -> None:
    log, of = EpochLog(), writer()
    token = log.start_commit(of, named(0, log.joined(of)))
    assert token not in log.replies
    log.wait(CONFIG.epoch_complete_wait_ms)
    reply = log.replied(token)
    assert (reply.status, reply.is_complete) == (S.COMMITTED, False)
    again = log.start_commit(of)
    assert again not in log.replies, "a repeated request waits as well"
    log.write_markers()
    assert log.replied(again).is_complete
    assert log.commit(of).is_complete


def test_a_late_commit_of_an_aborted_epoch_does_not_commit_it_empty() -> None:
    log, of = EpochLog(), writer()
    log.joined(of)
    log.abort(of)
    log.write_markers()
    for found in (log, log.restarted(), log.restarted(compacted=True)):
        assert found.commit(of).status is S.ABORTED
        assert found.join(of).status is S.ABORTED
        assert found.heartbeat(of) is S.ABORTED
        assert found.join(writer(ticket=2)).status is S.OPEN


def test_an_abort_before_any_join_of_the_epoch_holds() -> None:
    log = EpochLog()
    assert log.abort(writer()).status is S.ABORTED
    assert log.restarted().commit(writer()).status is S.ABORTED
    commit_empty(log.restarted(), 1)


def test_a_refused_record_decides_nothing() -> None:
    log, of = EpochLog(), writer()
    one = log.joined(of)
    log.refuses_after = 0
    log.start_commit(of, named(0, one))
    assert log.in_flight == [(0, EpochState.OPEN)]
    log.refuses_after = -1
    assert log.commit(of, named(0, one)).status is S.COMMITTED


# -- prepared epochs


def test_a_prepared_epoch_does_not_time_out() -> None:
    log, of = EpochLog(), writer()
    one = log.joined(of)
    assert log.prepare(of, named(0, one)).status is S.PREPARED
    assert log.prepare(of, named(0, one)).status is S.PREPARED, "its reply was lost"
    log.wait(10 * CONFIG.epoch_max_ms)
    assert log.in_flight == [(0, PREPARED)]
    found = log.restarted(compacted=True)
    found.wait(10 * CONFIG.epoch_max_ms)
    assert found.in_flight == [(0, PREPARED)]
    assert found.heartbeat(of) is S.PREPARED
    assert found.abort(of).status is S.PREPARED, "only on purpose"
    assert found.resolve(of, COMMITTING).status is S.COMMITTED
    assert found.committed(one) == [True]


def test_a_newer_run_decides_the_prepared_epoch_before_it_writes() -> None:
    log, old, new = EpochLog(), writer(), writer(ticket=2, run=NEWER_RUN)
    one = log.joined(old)
    log.prepare(old, named(0, one))
    assert log.join(new).status is S.PREPARED
    assert log.commit(new).status is S.PREPARED
    with pytest.raises(KafkaError, match="another epoch"):
        log.prepare(new)
    assert log.resolve(new, ABORTING).status is S.ABORTED
    assert log.resolve(old, COMMITTING).status is S.FENCED
    log.write_markers()
    assert log.committed(one) == [False]
    again = log.joined(new)
    log.prepare(new, named(0, again))
    assert log.resolve(old, COMMITTING).status is S.FENCED, "never the newer run's"
    assert log.resolve(new, COMMITTING).status is S.COMMITTED
    assert log.resolve(new, COMMITTING).is_complete, "repeated"
    assert log.resolve(new, ABORTING).status is S.COMMITTED


def test_where_nothing_is_prepared_the_ticket_may_go_on() -> None:
    log, of = EpochLog(), writer()
    with pytest.raises(KafkaError, match="not known"):
        log.resolve(of, COMMITTING)
    assert log.resolve(of, ABORTING).status is S.ABORTED
    one = log.joined(of)
    assert log.commit(of, named(0, one)).status is S.COMMITTED
    following = writer(1, 2)
    assert log.resolve(following, ABORTING).status is S.ABORTED
    assert log.resolve(following, COMMITTING).status is S.ABORTED
    assert log.join(following).status is S.OPEN
    assert log.resolve(following, ABORTING).status is S.ABORTED, "its own open epoch"
    assert log.join(following).status is S.ABORTED
    assert log.resolve(writer(0, 2), COMMITTING).status is S.COMMITTED
    assert log.resolve(writer(0, 2), ABORTING).status is S.COMMITTED


def test_a_zombie_prepares_nothing_once_a_newer_run_has_looked() -> None:
    log, old, new = EpochLog(), writer(), writer(ticket=2, run=NEWER_RUN)
    one = log.joined(old)
    assert log.resolve(new, ABORTING).status is S.ABORTED
    assert log.prepare(old, named(0, one)).status is S.FENCED
    log.write_markers()
    assert log.committed(one) == [False]
    assert log.join(new).status is S.OPEN


# -- deadlines


def test_an_epoch_without_a_sign_of_life_is_aborted_as_a_whole() -> None:
    log, of = EpochLog(), writer()
    one = log.joined(of, 0)
    log.wait(CONFIG.epoch_timeout_ms - 1)
    two = log.joined(of, 1, 1)
    log.wait(CONFIG.epoch_timeout_ms - 1)
    assert log.heartbeat(of) is S.OPEN
    log.wait(CONFIG.epoch_timeout_ms - 1)
    log.enlist(one, 1)
    log.wait(CONFIG.epoch_timeout_ms - 1)
    assert log.in_flight == [(0, EpochState.OPEN)]
    log.wait(1)
    assert log.in_flight == [(0, ABORTING)]
    log.write_markers()
    assert log.committed(one, two) == [False, False]
    assert log.heartbeat(of) is S.ABORTED


def test_heartbeats_extend_an_epoch_up_to_its_maximum() -> None:
    log, of = EpochLog(), writer()
    log.joined(of)
    for _ in range(CONFIG.epoch_max_ms // 30_000):
        assert log.heartbeat(of) is S.OPEN
        log.wait(30_000)
    assert log.in_flight == [(0, ABORTING)]


def test_a_successor_gives_the_tasks_a_whole_timeout_but_not_a_longer_epoch() -> None:
    log, of = EpochLog(), writer()
    log.joined(of)
    log.wait(CONFIG.epoch_timeout_ms - 1)
    found = EpochLog(log.log)
    found.now = log.now
    found.shard.epochs.loaded(log.now)
    found.wait(CONFIG.epoch_timeout_ms - 1)
    assert found.in_flight == [(0, EpochState.OPEN)]
    found.wait(1)
    assert found.in_flight == [(0, ABORTING)]


def test_an_expiry_whose_record_is_refused_is_tried_again() -> None:
    log, of = EpochLog(), writer()
    log.joined(of)
    log.refuses_after = 0
    log.wait(CONFIG.epoch_timeout_ms)
    assert log.in_flight == [(0, EpochState.OPEN)]
    log.refuses_after = -1
    log.wait(CONFIG.retry_ms)
    assert log.in_flight == [(0, ABORTING)]


def test_a_release_without_epochs_refuses_to_load_their_participants() -> None:
    """Every record of one names what ends it by a value that such a release does not know."""
    log, of = EpochLog(), writer()
    one = log.joined(of)
    log.enlist(one, 1, 2)
    log.commit(of, named(0, one))
    log.joined(writer(1, 2))
    key = transaction_key(one.transactional_id)
    stored = [record.value for record in log.log if record.key == key]
    assert len(stored) == 4
    for value in stored:
        assert value is not None
        assert read_transaction("t", value).ended_by == 3


def test_participants_neither_expire_nor_time_out_by_themselves() -> None:
    log, of = EpochLog(), writer()
    one = log.joined(of)
    assert one.deadline_ms is None
    log.commit(of, named(0, one))
    log.wait(2 * CONFIG.expiration_ms)
    assert log.shard.transactions[one.transactional_id].state is TransactionState.COMPLETE_COMMIT


def _of(record):  # type: ignore[no-untyped-def]
    decision = Decision()
    decision.records.append(record)
    return decision
