"""A coordinator that ends at any point: one decision record decides an epoch, and nothing else.

Each story is told once. Then its log is cut after every record and loaded by a successor, from all
records and from what compaction leaves of them; the successor finishes what it finds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from headwater.wire.epoch_values import EpochState, EpochStatus
from headwater_broker.coordinator.transaction.epoch_records import (
    DecisionKey,
    SinkKey,
    read_decision,
    read_own_key,
    read_sink,
)
from headwater_broker.coordinator.transaction.transaction import Transaction
from unit.coordinator.epoch_log import (
    CONFIG,
    NEWER_RUN,
    NEWEST_RUN,
    EpochLog,
    named,
    writer,
)


class Told(NamedTuple):
    """A story that was told: its log, and the participants of its epoch."""

    log: EpochLog
    committing: list[Transaction]
    aborting: list[Transaction]


def two_tasks_commit() -> Told:
    """Two tasks join, one of them twice (speculation); one attempt enlists another partition."""
    log, of = EpochLog(), writer()
    one, two, slower = log.joined(of, 0), log.joined(of, 1, 1), log.joined(of, 1, 2)
    log.enlist(one, 0, 1)
    log.commit(of, named(0, one), named(1, two))
    return Told(log, [one, two], [slower])


def empty_epoch_commits() -> Told:
    log = EpochLog()
    log.commit(writer())
    return Told(log, [], [])


def tasks_without_rows_commit() -> Told:
    """Every participant has joined in vain: none is named."""
    log, of = EpochLog(), writer()
    one = log.joined(of)
    log.commit(of)
    return Told(log, [], [one])


def two_tasks_abort() -> Told:
    log, of = EpochLog(), writer()
    one, two = log.joined(of, 0), log.joined(of, 1, 1)
    log.abort(of)
    log.write_markers()
    return Told(log, [], [one, two])


def prepared_and_committed_by_a_newer_run() -> Told:
    log, of = EpochLog(), writer()
    one, two, slower = log.joined(of, 0), log.joined(of, 1, 1), log.joined(of, 1, 2)
    log.prepare(of, named(0, one), named(1, two))
    log.resolve(writer(ticket=2, run=NEWER_RUN), EpochState.COMMITTING)
    return Told(log, [one, two], [slower])


def prepared_and_aborted() -> Told:
    log, of = EpochLog(), writer()
    one = log.joined(of)
    log.prepare(of, named(0, one))
    log.resolve(of, EpochState.ABORTING)
    log.write_markers()
    return Told(log, [], [one])


def prepared_without_rows_and_committed() -> Told:
    log, of = EpochLog(), writer()
    log.prepare(of)
    log.resolve(of, EpochState.COMMITTING)
    return Told(log, [], [])


def a_newer_run_writes_the_epoch_again() -> Told:
    log, of, newer = EpochLog(), writer(), writer(ticket=2, run=NEWER_RUN)
    one = log.joined(of)
    again = log.joined(newer)
    log.write_markers()
    log.commit(newer, named(0, again))
    return Told(log, [again], [one])


def the_next_epoch_uses_the_slots_again() -> Told:
    """The first epoch's records are replaced by the second one's, in a compacted log."""
    log, of = EpochLog(), writer()
    one = log.joined(of)
    log.abort(of)
    log.write_markers()
    again = writer(ticket=2)
    two = log.joined(again)
    log.commit(again, named(0, two))
    return Told(log, [two], [one])


STORIES = [
    two_tasks_commit,
    empty_epoch_commits,
    tasks_without_rows_commit,
    two_tasks_abort,
    prepared_and_committed_by_a_newer_run,
    prepared_and_aborted,
    prepared_without_rows_and_committed,
    a_newer_run_writes_the_epoch_again,
    the_next_epoch_uses_the_slots_again,
]


def is_decided(log: EpochLog, records: int) -> bool:
    """Whether a record says that epoch 0 is committed."""
    for record in log.log[:records]:
        match read_own_key(record.key) if record.key[:1] == b"\x48" else None:
            case SinkKey(name) if record.value is not None:
                if read_sink(name, record.value).last_epoch == 0:
                    return True
            case DecisionKey() if record.value is not None:
                if read_decision(record.value).state is EpochState.COMMITTING:
                    return True
    return False


def finish(found: EpochLog) -> None:
    """Write the markers that are due; give up what is open or prepared."""
    found.write_markers()
    found.wait(CONFIG.epoch_timeout_ms + 1)
    if (0, EpochState.PREPARED) in found.in_flight:
        last = writer(ticket=9, run=NEWEST_RUN)
        assert found.resolve(last, EpochState.ABORTING).status is EpochStatus.ABORTED
    found.write_markers()
    found.wait(CONFIG.retry_ms)


@pytest.mark.parametrize("compacted", [False, True], ids=["whole", "compacted"])
@pytest.mark.parametrize("tell", STORIES, ids=lambda tell: tell.__name__)
def test_a_log_that_is_cut_anywhere_has_one_outcome(
    tell: Callable[[], Told], compacted: bool
) -> None:
    told = tell()
    assert told.log.in_flight == []
    assert told.log.committed(*told.committing) == [True] * len(told.committing)
    assert told.log.committed(*told.aborting) == [False] * len(told.aborting)
    for records in range(len(told.log.log) + 1):
        commits = is_decided(told.log, records)
        found = told.log.restarted(records, compacted=compacted)
        finish(found)
        assert found.in_flight == [], f"after {records} records"
        for joined, expected in (
            *((joined, commits) for joined in told.committing),
            *((joined, False) for joined in told.aborting),
        ):
            [outcome] = found.committed(joined)
            assert outcome in (expected, None), f"after {records} records"
            known = found.shard.transactions.get(joined.transactional_id)
            assert known is None or known.state.is_idle
        sinks = found.shard.epochs.table.sinks
        assert ("alerts" in sinks and sinks["alerts"].last_epoch == 0) is commits
        again = found.join(writer(ticket=10, run=NEWEST_RUN))
        assert again.status is (EpochStatus.COMMITTED if commits else EpochStatus.OPEN)


@pytest.mark.parametrize("compacted", [False, True], ids=["whole", "compacted"])
@pytest.mark.parametrize("tell", STORIES, ids=lambda tell: tell.__name__)
def test_a_successor_that_ends_at_any_record_is_finished_by_the_next(
    tell: Callable[[], Told], compacted: bool
) -> None:
    told = tell()
    for first in range(len(told.log.log) + 1):
        commits = is_decided(told.log, first)
        successor = told.log.restarted(first, compacted=compacted)
        finish(successor)
        for second in range(first, len(successor.log) + 1):
            found = successor.restarted(second, compacted=compacted)
            finish(found)
            assert found.in_flight == []
            assert is_decided(found, len(found.log)) is commits
            expected = [commits] * len(told.committing)
            outcomes = found.committed(*told.committing)
            assert all(got in (want, None) for got, want in zip(outcomes, expected, strict=True))


def test_half_of_the_markers_are_written_when_the_coordinator_ends() -> None:
    log, of = EpochLog(), writer()
    one, two = log.joined(of, 0), log.joined(of, 1, 1)
    log.start_commit(of, named(0, one), named(1, two))
    due = log.due()
    log.write_markers(due[:1])
    assert log.in_flight == [(0, EpochState.COMMITTING)]
    found = log.restarted()
    assert [d.identity for d in found.due()] == [d.identity for d in due], "all are sent again"
    found.write_markers(due)
    assert found.in_flight == []
    assert found.committed(one, two) == [True, True]


@pytest.mark.parametrize("retried", [0, -1], ids=["complete", "not complete"])
def test_a_completion_that_is_refused_in_part_goes_on(retried: int) -> None:
    """Its records may be more than one batch: any prefix is in the log, and the rest is retried,
    also when the participant whose marker was the last is complete."""
    log, of = EpochLog(), writer()
    joined = [log.joined(of, task, task) for task in range(900)]
    token = log.start_commit(of, *(named(task, one) for task, one in enumerate(joined)))
    log.refuses_after = 1
    due = log.due()
    last = due.pop(retried)
    log.write_markers([*due, last])
    assert log.in_flight == [(0, EpochState.COMMITTING)]
    assert token not in log.replies
    idle = sum(log.state(one).is_idle for one in joined)
    assert 0 < idle < len(joined), "a part of the completion is in the log"
    assert log.state(joined[retried]).is_idle is (retried == 0)
    found = log.restarted()
    found.write_markers()
    assert found.in_flight == []
    log.refuses_after = 0
    log.write_markers([last])
    log.wait(CONFIG.retry_ms)
    assert log.in_flight == [(0, EpochState.COMMITTING)]
    log.refuses_after = -1
    log.wait(CONFIG.retry_ms)
    assert log.in_flight == []
    assert log.replied(token).is_complete


def test_two_epochs_that_complete_at_once_both_leave_their_outcome() -> None:
    """What each writes of the sink begins with what the other has left."""
    log = EpochLog()
    for ticket in (1, 2):
        of = writer(0, ticket)
        log.joined(of)
        log.abort(of)
    log.refuses_after = 0
    log.write_markers(log.due()[::-1])
    log.refuses_after = -1
    log.wait(CONFIG.retry_ms)
    assert log.in_flight == []
    assert log.sink.aborted_ticket == 2
    for ticket in (1, 2):
        assert log.commit(writer(0, ticket)).status is not EpochStatus.COMMITTED
