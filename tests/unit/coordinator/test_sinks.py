"""Sinks of epoch transactions: deleted, forgotten, taken over, described; tickets."""

from __future__ import annotations

import pytest

from headwater.errors import ErrorCode, KafkaError
from headwater.wire.epoch_values import KEEP_LAST_EPOCH, EpochState, EpochStatus, SinkKind
from headwater_broker.coordinator.common.shard import Now
from headwater_broker.coordinator.transaction import sink_administration
from unit.coordinator.epoch_log import (
    CONFIG,
    NEWER_RUN,
    EpochLog,
    commit_empty,
    named,
    writer,
)

S = EpochStatus
WEEK_MS = CONFIG.expiration_ms


def test_a_batch_write_keeps_its_outcome_for_a_week_and_its_participants_for_an_hour() -> None:
    log, of = EpochLog(), writer(kind=SinkKind.BATCH)
    one = log.joined(of)
    log.commit(of, named(0, one))
    log.wait(CONFIG.epoch_max_ms - 1)
    assert len(log.shard.transactions) == 1
    log.wait(2)
    assert log.shard.transactions == {}
    assert EpochLog(log.log, compacted=True).shard.transactions == {}
    log.wait(WEEK_MS - CONFIG.epoch_max_ms - 2)
    assert log.commit(of, named(0, one)).status is S.COMMITTED, "a repeated request"
    assert log.join(of).status is S.COMMITTED, "a task that was left behind"
    assert log.restarted(compacted=True).commit(of, named(0, one)).status is S.COMMITTED
    log.wait(2)
    assert log.shard.epochs.table.sinks == {}
    assert log.shard.transactions == {}


def test_a_batch_write_learns_its_outcome_after_a_long_outage() -> None:
    """The reply was lost when the brokers stopped; its driver asks on until it knows."""
    log, of = EpochLog(), writer(kind=SinkKind.BATCH)
    one = log.joined(of)
    log.commit(of, named(0, one))
    log.now = Now(log.now.wall_ms + 2 * WEEK_MS, log.now.steady_ms)
    found = log.restarted()
    found.shard.epochs.loaded(found.now)
    found.wait(CONFIG.epoch_max_ms - 1)
    assert found.commit(of, named(0, one)).status is S.COMMITTED
    found.wait(2 * CONFIG.retry_ms)
    assert found.shard.epochs.table.sinks == {}
    assert found.shard.transactions == {}


def test_a_record_that_forgets_a_batch_write_is_written_again_when_it_is_refused() -> None:
    log, of = EpochLog(), writer(kind=SinkKind.BATCH)
    log.commit(of, named(0, log.joined(of)))
    log.refuses_after = 0
    log.wait(WEEK_MS)
    log.refuses_after = -1
    assert len(log.shard.transactions) == 1
    log.wait(2 * CONFIG.retry_ms)
    assert log.shard.epochs.table.sinks == {}
    assert log.shard.transactions == {}


@pytest.mark.parametrize("kind", [SinkKind.BATCH, SinkKind.QUERY])
def test_the_outcome_of_a_sink_that_is_forgotten_is_unknown_and_never_aborted(
    kind: SinkKind,
) -> None:
    """It was committed, and the reply was lost: "aborted" would have its rows written twice."""
    log, of = EpochLog(), writer(kind=kind)
    one = log.joined(of)
    log.commit(of, named(0, one))
    log.delete()
    epochs, asks = log.shard.epochs, (named(0, one),)
    for decision in (
        epochs.decide(of, asks, EpochState.COMMITTING, log.now, 1),
        epochs.decide(of, asks, EpochState.PREPARED, log.now, 1),
        epochs.resolve(of, EpochState.COMMITTING, log.now, 1),
    ):
        # A coordinator that was deposed does not know sinks that its successor has.
        [(_, error)] = decision.leader_replies
        assert isinstance(error, KafkaError) and error.code is ErrorCode.RESOURCE_NOT_FOUND
        assert "'alerts' is not known" in str(error) and "epoch 0" in str(error)
        assert not decision.records


def test_the_abort_that_follows_an_unknown_outcome_of_a_batch_write_leaves_no_trace() -> None:
    """Spark aborts after a failed commit; `headwater sinks show` must not say "none committed"."""
    log, of = EpochLog(), writer(kind=SinkKind.BATCH)
    log.commit(of, named(0, log.joined(of)))
    log.delete()
    with pytest.raises(KafkaError, match="not known"):
        log.abort(of)
    assert log.shard.epochs.table.sinks == {}
    assert log.join(of).status is S.OPEN
    assert log.abort(of).status is S.ABORTED
    assert log.join(of).status is S.ABORTED


def test_the_sink_of_a_query_is_kept() -> None:
    log = EpochLog()
    commit_empty(log, 0)
    log.wait(1_000 * CONFIG.epoch_max_ms)
    assert log.join(writer(0, 2)).status is S.COMMITTED


def test_a_sink_is_deleted_when_its_epochs_are_complete() -> None:
    log, of = EpochLog(), writer()
    one = log.joined(of)
    with pytest.raises(KafkaError, match="is Open") as refused:
        log.delete()
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    log.commit(of, named(0, one))
    log.delete()
    assert log.shard.transactions == {}
    with pytest.raises(KafkaError) as refused:
        log.delete()
    assert refused.value.code is ErrorCode.RESOURCE_NOT_FOUND
    assert log.joined(of).producer_id != one.producer_id, "its producers are gone with it"


def test_a_takeover_gives_the_sink_to_another_checkpoint() -> None:
    log = EpochLog()
    commit_empty(log, 0, 1, 2)
    open_one = writer(3, 4)
    one = log.joined(open_one)
    before = log.take_over("another", 7)
    assert before == ("query", 2)
    log.write_markers()
    assert log.committed(one) == [False]
    assert log.join(open_one, 1).status is S.SINK_OWNED
    theirs = writer(8, 5, NEWER_RUN, owner="another")
    assert log.join(theirs).status is S.OPEN
    assert log.join(writer(7, 5, NEWER_RUN, owner="another")).status is S.COMMITTED


def test_a_takeover_may_leave_the_last_epoch_as_it_is_when_it_is_decided() -> None:
    log = EpochLog()
    commit_empty(log, 0, 1)
    commit_empty(log, 2)  # after the operator looked
    assert log.take_over("another", KEEP_LAST_EPOCH) == ("query", 2)
    assert log.sink.last_epoch == 2
    assert log.restarted(compacted=True).sink.last_epoch == 2


def test_a_new_run_that_repeats_the_last_epoch_is_recorded_with_the_ticket_of_its_write() -> None:
    log = EpochLog()
    commit_empty(log, 0)
    first, second = writer(0, 5, NEWER_RUN), writer(0, 6, NEWER_RUN)
    assert log.join(first).status is S.COMMITTED
    assert (log.sink.run, log.sink.ticket) == (NEWER_RUN, 5)
    assert log.join(second).status is S.COMMITTED
    assert log.sink.ticket == 5, "the second write of the batch is told apart by its ticket"
    assert log.restarted(compacted=True).sink.run == NEWER_RUN
    assert log.join(writer(1, 1)).status is S.FENCED, "the run before is retired"
    assert log.join(writer(1, 7, NEWER_RUN)).status is S.OPEN


def test_a_takeover_without_an_owner_waits_for_the_next_query() -> None:
    log = EpochLog()
    commit_empty(log, 0, 1)
    log.take_over("", -1)
    assert log.join(writer(0, 9)).status is S.FENCED, "the run before is retired"
    assert log.join(writer(0, 9, NEWER_RUN, owner="another")).status is S.OPEN
    assert log.sink.owner == "another"


def test_a_takeover_waits_for_a_prepared_epoch_and_survives_a_commit_in_flight() -> None:
    log, of = EpochLog(), writer()
    one = log.joined(of)
    log.prepare(of, named(0, one))
    with pytest.raises(KafkaError, match="prepared"):
        log.take_over("query", 9)
    log.ask(lambda s, t: s.epochs.resolve(of, EpochState.COMMITTING, log.now, t))
    log.take_over("query", 9)
    log.write_markers()
    assert log.sink.last_epoch == 9
    assert log.restarted(compacted=True).sink.last_epoch == 9


def test_sinks_are_described() -> None:
    log, of = EpochLog(), writer()
    log.joined(of, 3, 4)
    [row] = sink_administration.described(log.shard.epochs, None)
    assert (row.sink, row.owner, row.ticket, row.last_epoch, row.slots) == (
        "alerts", "query", 1, -1, 1,
    )  # fmt: skip
    [epoch] = row.epochs
    assert (epoch.epoch, epoch.state) == (0, "Open")
    assert epoch.deadline_ms == log.now.wall_ms + CONFIG.epoch_timeout_ms
    [member] = epoch.participants
    assert (member.task, member.attempt, member.partitions) == (3, 4, ("flights-0",))
    assert sink_administration.described(log.shard.epochs, ["unknown"]) == []


# -- tickets


def test_tickets_rise_over_failovers() -> None:
    log = EpochLog()
    seen: list[object] = []
    for _ in range(3):
        for _ in range(1_100):
            token = log.ask(lambda s, t: s.epochs.tickets.allocate(t))
            seen.append(log.replies[token])
        log = log.restarted(compacted=True)
    assert seen == sorted(set(seen), key=int)  # type: ignore[call-overload]
    assert len(log.log) <= 7, "one record reserves many"
