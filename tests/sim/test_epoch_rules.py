"""Each invariant of epochs detects a bad event, and passes the good event before it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from headwater.records.builder import BatchBuilder
from headwater.topic_names import TRANSACTION_TOPIC
from headwater.wire.epoch_values import EpochState, EpochStatus
from headwater_broker.coordinator.transaction.epoch_records import decision_record
from headwater_broker.coordinator.transaction.epoch_values import EpochDecision, EpochKey
from sim.epoch_ledger import CommittedTable, EpochAttempt, EpochFate
from sim.epoch_requests import EpochRequests
from sim.invariants import Seen, ViolationError
from sim.plan import EPOCH_TIMEOUT_MS, Plan, write_epochs
from sim.test_transaction_rules import SOURCE, Log, fails, hold, rule
from sim.world import World

OLD, NEW = UUID(int=1), UUID(int=2)
COMMITTING, ABORTING = EpochState.COMMITTING, EpochState.ABORTING


@pytest.fixture
def world() -> World:
    plan = Plan()
    write_epochs(plan)
    return World(0, plan)


def attempt(
    world: World,
    ticket: int = 1,
    fate: EpochFate = EpochFate.DECIDED,
    tasks: tuple[str, ...] = ("0.0",),
    *,
    epoch: int = 0,
    run: UUID = OLD,
) -> EpochAttempt:
    """An attempt whose commit names these tasks; each has sent one record."""
    made = world.epochs.begin("s", epoch, ticket, run, 0.0)
    made.fate = fate
    for task in tasks:
        made.records[f"s/{epoch}/{ticket}/{task}"] = [(SOURCE, _row(ticket, task, epoch))]
    made.named = frozenset(made.records)
    return made


def _row(ticket: int = 1, task: str = "0.0", epoch: int = 0) -> bytes:
    return b"s/%d/%d/%b#0" % (epoch, ticket, task.encode())


class Decisions(Log):
    """A log of decision records."""

    def decide(self, state: EpochState, ticket: int = 1, epoch: int = 0) -> Decisions:
        record = decision_record("s", EpochKey(epoch, ticket), EpochDecision(state, OLD))
        builder = BatchBuilder()
        builder.append(0, record.key, record.value)
        self.data += builder.build(base_offset=self.end)
        self.end += 1
        return self

    def seen(self, world: World, mark: int | None = None, name: str = "") -> None:
        """The high watermark of this log rises; `name`: the invariant that this breaks."""
        topic = SimpleNamespace(topic=TRANSACTION_TOPIC, partition=0)
        replica = SimpleNamespace(**vars(topic), **vars(self.replica(mark=mark)))
        event = (world.brokers[0], replica, Seen(), world.ledger(*SOURCE))
        if name:
            fails(world, name, "replica", *event)
        else:
            rule(world, "DecisionsStay").replica(*event)


def test_a_decision_stays(world: World) -> None:
    log = Decisions().decide(EpochState.PREPARED).decide(COMMITTING).decide(ABORTING)
    log.seen(world, mark=1)
    assert world.epochs.decisions == {("s", 0, 1): EpochState.PREPARED}
    log.seen(world, mark=2)
    log.seen(world, name="DecisionsStay")


def test_one_attempt_of_an_epoch_is_committed(world: World) -> None:
    log = Decisions().decide(COMMITTING, 1).decide(ABORTING, 2).decide(COMMITTING, 3, epoch=1)
    log.seen(world)
    log.decide(COMMITTING, 4)
    log.seen(world, name="DecisionsStay")


def test_no_epoch_is_read_early(world: World) -> None:
    early = "NoEpochIsReadEarly"
    made = attempt(world)
    fails(world, early, "read_committed", SOURCE, 0, _row())
    Decisions().decide(EpochState.PREPARED).seen(world)
    fails(world, early, "read_committed", SOURCE, 0, _row())
    world.epochs.decisions[made.name] = COMMITTING
    rule(world, early).read_committed(SOURCE, 0, _row())
    fails(world, early, "read_committed", SOURCE, 0, _row(task="1.1"))
    made.fate = EpochFate.ABORTED
    fails(world, early, "read_committed", SOURCE, 0, _row())


@pytest.mark.parametrize(
    ("fate", "log", "holds"),
    [
        (EpochFate.DECIDED, Log().write(_row()).write(_row(task="1.1")).mark(), True),
        (EpochFate.DECIDED, Log().write(_row()).mark(), False),
        (EpochFate.DECIDED, Log().write(_row()).mark(commit=False), False),
        (
            EpochFate.DECIDED,
            Log().write(_row()).write(_row(task="1.1")).write(_row()).mark(),
            False,
        ),
        (EpochFate.DECIDED, Log().write(_row(2)).mark(), True),
        (EpochFate.DECIDED, Log().write(_row(2)).write(_row()).mark(), False),
        (EpochFate.ABORTED, Log().write(_row()).write(_row(task="1.1")).mark(), False),
        (EpochFate.OPEN, Log().write(_row()).write(_row(task="1.1")).mark(), False),
        (EpochFate.UNKNOWN, Log().write(_row()).write(_row(task="1.1")).mark(), True),
    ],
)
def test_epochs_are_whole_and_once(
    world: World, monkeypatch: pytest.MonkeyPatch, fate: EpochFate, log: Log, holds: bool
) -> None:
    attempt(world, 1, fate, ("0.0", "1.1"))
    attempt(world, 2, EpochFate.UNKNOWN)
    world.epochs.committed.add(("s", 0))
    hold(world, monkeypatch, source=log)
    if holds:
        rule(world, "EpochsAreWholeAndOnce").ended()
    else:
        fails(world, "EpochsAreWholeAndOnce")


def test_an_epoch_without_rows_may_be_committed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold(world, monkeypatch)
    attempt(world, 1, EpochFate.DECIDED, ())
    world.epochs.committed.add(("s", 0))
    rule(world, "EpochsAreWholeAndOnce").ended()
    attempt(world, 2, EpochFate.DECIDED, epoch=1)
    world.epochs.committed.add(("s", 1))
    fails(world, "EpochsAreWholeAndOnce")


def test_a_fenced_run_commits_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    made = attempt(world, 1)
    made.commit_sent_s = 5.0
    hold(world, monkeypatch, source=Log().write(_row()).mark())
    world.epochs.opened["s"] = [(OLD, 1, 1.0), (NEW, 2, 6.0)]
    rule(world, "EpochsAreWholeAndOnce").ended()
    world.epochs.opened["s"] = [(OLD, 1, 1.0), (NEW, 2, 4.0)]
    fails(world, "EpochsAreWholeAndOnce")


def test_a_zombie_with_a_fresh_ticket_must_be_fenced(world: World) -> None:
    ledger, zombie = world.epochs, attempt(world, 3)
    zombie.commit_sent_s = 9.0
    ledger.opened["s"] = [(NEW, 2, 4.0)]
    assert not ledger.must_be_fenced(zombie), "its run was not known before the newer one"
    ledger.opened["s"] = [(OLD, 1, 1.0), (NEW, 2, 4.0)]
    assert ledger.must_be_fenced(zombie)
    ledger.opened["s"] = [(NEW, 2, 4.0), (OLD, 3, 5.0)]
    assert not ledger.must_be_fenced(zombie)


def test_tables_agree(world: World) -> None:
    table = world.epochs.tables["s"] = CommittedTable()
    made = attempt(world)
    assert table.claim(1) and table.commit(0, 1)
    fails(world, "TablesAgree")
    world.epochs.decisions[made.name] = COMMITTING
    rule(world, "TablesAgree").ended()
    world.epochs.decisions["s", 1, 2] = COMMITTING
    fails(world, "TablesAgree")


def test_a_claimed_table_takes_no_commit_of_an_earlier_run() -> None:
    table = CommittedTable()
    assert table.claim(1) and table.claim(2)
    assert not table.claim(1) and not table.commit(0, 1)
    assert table.commit(0, 2) and not table.commit(0, 2)


def test_nobody_is_fenced_or_aborted_without_reason(world: World) -> None:
    ledger, made = world.epochs, attempt(world, 2, EpochFate.OPEN)
    client = EpochRequests(world, "task", "query")

    def broken(status: EpochStatus) -> str:
        try:
            client.check_over(made, status, "CommitEpoch")
        except ViolationError as violation:
            return violation.name
        return ""

    ledger.asks(made)
    assert broken(EpochStatus.FENCED) == "NobodyIsFencedWithoutReason"
    assert broken(EpochStatus.ABORTED) == "EpochsAbortForAReason"
    assert broken(EpochStatus.SINK_OWNED) == "NothingUnforeseen"
    world.scheduler.now = EPOCH_TIMEOUT_MS / 1000
    assert broken(EpochStatus.ABORTED) == "", "its deadline is over"
    assert broken(EpochStatus.FENCED) == "NobodyIsFencedWithoutReason"
    ledger.asks(attempt(world, 1, run=NEW))
    assert broken(EpochStatus.FENCED) == "NobodyIsFencedWithoutReason", "its ticket is lower"
    ledger.asks(attempt(world, 3, run=NEW))
    assert broken(EpochStatus.FENCED) == ""


class Answering(EpochRequests):
    """A client whose requests get these replies."""

    def __init__(self, world: World, *replies: Any) -> None:
        super().__init__(world, "task", "query")
        self._replies = list(replies)

    async def to_coordinator(self, key: str, request: Any, reply: Any) -> Any:
        made = reply(error_code=0, **self._replies.pop(0))
        return SimpleNamespace(reply=made, in_vain=0, sent_s=self.world.scheduler.now)


def test_tickets_rise(world: World) -> None:
    client = Answering(world, {"ticket": 3}, {"ticket": 4}, {"ticket": 4})
    assert [_run(client.allocate()) for _ in range(2)] == [3, 4]
    assert _violation(client.allocate()) == "TicketsRise"


def test_slots_are_not_shared(world: World) -> None:
    given = {"status": 0, "transactional_id": "t", "slot": 0, "producer_id": 7, "producer_epoch": 1}
    client = Answering(world, given, given, {**given, "producer_epoch": 2}, given)
    made = attempt(world, 1, EpochFate.OPEN, ())
    first = _run(client.join(made, 0, 0))
    assert _run(client.join(made, 0, 0)) == first, "the same attempt gets the same again"
    _run(client.join(made, 1, 1))
    assert _violation(client.join(made, 2, 2)) == "SlotsAreNotShared"


def test_rewound_checkpoints_are_refused(world: World) -> None:
    mismatch = {"status": EpochStatus.CHECKPOINT_MISMATCH, "transactional_id": ""}
    given = {"status": 0, "transactional_id": "t", "slot": 0, "producer_id": 7, "producer_epoch": 1}
    client = Answering(world, mismatch, mismatch, given)
    made = attempt(world, 1, EpochFate.OPEN, (), epoch=4)
    assert _violation(client.join(made, 0, 0)) == "RewoundCheckpointsAreRefused"
    attempt(world, 2, EpochFate.UNKNOWN, epoch=5)
    assert _run(client.join(made, 0, 0)) is EpochStatus.CHECKPOINT_MISMATCH
    world.epochs.committed.add(("s", 5))
    world.epochs.committed_s["s", 5] = -1.0
    assert _violation(client.join(made, 0, 0)) == "RewoundCheckpointsAreRefused"


def _run(work: Any) -> Any:
    """The result of a coroutine that waits for nothing."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("it waits")


def _violation(work: Any) -> str:
    with pytest.raises(ViolationError) as broken:
        _run(work)
    return broken.value.name
