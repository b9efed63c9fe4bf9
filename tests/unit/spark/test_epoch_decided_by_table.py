"""Epochs that a table decides: every crash, every pair of drivers that race."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from headwater.client.blocking.epoch_client import SinkFencedError
from headwater.client.epoch_errors import EpochError
from headwater.errors import ErrorCode, KafkaError
from headwater_spark.sink.epoch_decided_by_table import (
    DisagreementError,
    PendingCommitError,
    UndecidedEpochError,
)
from unit.spark.decided_epochs import CrashError, FakeTable, Hook, World, nothing


class Steps:
    """A hook that counts steps, and does something at one of them."""

    def __init__(self, at: int = -1, action: Callable[[], None] | None = None) -> None:
        self.seen: list[str] = []
        self._at, self._action = at, action

    def __call__(self, step: str) -> None:
        self.seen.append(step)
        if len(self.seen) - 1 == self._at:
            if self._action is None:
                raise CrashError(step)
            self._action()


def _one_epoch() -> World:
    world = World()
    world.attempt(0, 1)
    return world


def after_a_crash_when_prepared() -> World:
    world = _one_epoch()
    with pytest.raises(CrashError):
        world.attempt(1, 1, _crash_at("before write"))
    assert world.coordinator.prepared is not None
    return world


def _crash_at(step: str) -> Steps:
    class Named(Steps):
        def __call__(self, name: str) -> None:
            if name == step:
                raise CrashError(name)

    return Named()


def steps_of(world: World, epoch: int, run: int) -> list[str]:
    steps = Steps()
    world.attempt(epoch, run, steps)
    return steps.seen


STEPS = steps_of(_one_epoch(), 1, 1)
RECOVERY_STEPS = steps_of(after_a_crash_when_prepared(), 1, 2)


def test_the_order_of_the_steps() -> None:
    calls = [step.removeprefix("before ") for step in STEPS if not step.startswith("after")]
    assert calls == [
        "allocate_ticket", "describe", "exists", "last_epoch", "join", "flush", "prepare", "write",
        "commit",
    ]  # fmt: skip


def test_later_epochs_of_a_run_read_no_history() -> None:
    """It costs a job."""
    world, steps = _one_epoch(), Steps()
    world.attempt(1, 1, steps, goes_on=True)
    assert "before has" in steps.seen
    assert "before last_epoch" not in steps.seen


@pytest.mark.parametrize("at", range(len(STEPS)))
def test_a_crash_at_each_step_and_another_in_recovery(at: int) -> None:
    for again in range(-1, len(RECOVERY_STEPS)):
        world = World()
        world.attempt(0, 1)
        with pytest.raises(CrashError):
            world.attempt(1, 1, Steps(at))
        try:
            world.attempt(1, 2, Steps(again))
        except CrashError:
            assert again >= 0
        world.attempt(1, 3)
        world.attempt(2, 3)
        world.check()
        assert [epoch for epoch, _ in world.table.rows] == [0, 1, 2]


@pytest.mark.parametrize("has_topics", [True, False])
@pytest.mark.parametrize("is_prepared_before", [True, False])
def test_two_drivers_race_at_every_step(is_prepared_before: bool, has_topics: bool) -> None:
    """A driver stands still at a step; a newer run does everything; the first one goes on."""
    count = len(RECOVERY_STEPS if is_prepared_before else STEPS)
    for at in range(count):
        for crash in range(-1, len(RECOVERY_STEPS)):
            world = after_a_crash_when_prepared() if is_prepared_before else _one_epoch()

            def newer(world: World = world, crash: int = crash) -> None:
                with suppress(CrashError):
                    world.attempt(1, 3, Steps(crash), has_topics=has_topics)

            with suppress(EpochError):
                world.attempt(1, 2, Steps(at, newer), has_topics=has_topics)
            world.attempt(1, 4)
            world.attempt(2, 4)
            world.check()
            assert [epoch for epoch, _ in world.table.rows] == [0, 1, 2]


def test_three_drivers_race() -> None:
    """The second one stands still too, while a third one does everything."""
    for first in range(len(RECOVERY_STEPS)):
        for second in range(len(RECOVERY_STEPS)):
            world = after_a_crash_when_prepared()

            def third(world: World = world) -> None:
                _tolerant(world, 4, nothing)

            def middle(world: World = world, second: int = second) -> None:
                _tolerant(world, 3, Steps(second, third))

            _tolerant(world, 2, Steps(first, middle))
            world.attempt(1, 5)
            world.attempt(2, 5)
            world.check()


def test_an_old_driver_between_prepare_and_the_tables_commit_writes_nothing() -> None:
    world = _one_epoch()

    def newer() -> None:
        world.attempt(1, 3)

    with pytest.raises(SinkFencedError, match="newer run"):
        world.attempt(1, 2, Steps(STEPS.index("before write"), newer))
    world.check()


def test_a_table_write_that_fails_is_aborted_in_the_topics_too() -> None:
    world = _one_epoch()
    with pytest.raises(OSError, match="disk"):
        world.attempt(1, 1, _failing("before write"))
    assert world.coordinator.prepared is None
    world.check()


def test_a_table_write_that_fails_after_its_commit_counts() -> None:
    world = _one_epoch()
    world.attempt(1, 1, _failing("after write"))
    world.check()
    assert [epoch for epoch, _ in world.table.rows] == [0, 1]


@pytest.mark.parametrize("failed", ["before commit", "after commit"])
def test_a_commit_that_brokers_do_not_confirm_is_left_to_the_next_attempt(failed: str) -> None:
    """Whether they have served it or not, and whatever crashes the next attempts."""
    for crash in range(-1, len(RECOVERY_STEPS)):
        world = _one_epoch()
        with pytest.raises(PendingCommitError, match=r"epoch 1 of sink 'sink' is decided.*disk"):
            world.attempt(1, 1, _failing(failed))
        assert world.table.rows[-1][0] == 1
        with suppress(CrashError):
            world.attempt(1, 2, Steps(crash))
        world.attempt(1, 3)
        world.check()
        assert [epoch for epoch, _ in world.table.rows] == [0, 1]


@pytest.mark.parametrize("failed", ["before commit", "after commit"])
def test_a_recovery_whose_commit_is_not_confirmed_is_left_to_the_one_after(failed: str) -> None:
    world = _one_epoch()
    with pytest.raises(CrashError):
        world.attempt(1, 1, _crash_at("after write"))
    with pytest.raises(PendingCommitError):
        world.attempt(1, 2, _failing(failed))
    world.attempt(1, 3)
    world.check()


def test_a_batch_that_raises_leaves_nothing_open() -> None:
    world = _one_epoch()
    with pytest.raises(OSError, match="disk"):
        world.attempt(1, 1, _failing("flush"))
    assert not world.coordinator.open
    world.check()


def test_a_history_that_is_cleaned_away_is_not_guessed() -> None:
    world = after_a_crash_when_prepared()
    world.table.is_history_gone = True
    with pytest.raises(UndecidedEpochError, match="headwater sinks commit sink 1 --execute"):
        world.attempt(1, 2)
    assert world.coordinator.prepared is not None


def test_an_epoch_that_was_aborted_by_hand_is_not_written_to_the_table_twice() -> None:
    world = _one_epoch()
    with pytest.raises(CrashError):
        world.attempt(1, 1, _crash_at("after write"))
    world.coordinator.prepared = None
    with pytest.raises(
        DisagreementError, match="takeover sink --owner query --last-epoch 1 --execute"
    ):
        world.attempt(1, 2)


def test_an_epoch_that_was_committed_by_hand_is_not_lost_in_the_table() -> None:
    world = after_a_crash_when_prepared()
    world.coordinator.prepared, world.coordinator.last_epoch = None, 1
    with pytest.raises(DisagreementError, match="--last-epoch 0 --execute writes it to both"):
        world.attempt(1, 2)


def test_the_first_epoch_that_was_committed_by_hand_is_not_lost_in_the_table() -> None:
    world = World()
    with pytest.raises(CrashError):
        world.attempt(0, 1, _crash_at("before write"))
    world.coordinator.prepared, world.coordinator.last_epoch = None, 0
    with pytest.raises(DisagreementError, match="--last-epoch -1 --execute writes it to both"):
        world.attempt(0, 2)
    world.coordinator.take_over(-1)
    world.attempt(0, 2)
    assert [epoch for epoch, _ in world.table.rows] == [0]


# -- tables that are not the one that has the sink's epochs


@pytest.mark.parametrize("step", ["before write", "after write"])
def test_a_table_that_is_not_there_decides_nothing(step: str) -> None:
    """Its storage is not mounted: the prepared epoch would be aborted, and perhaps it has it."""
    world = _one_epoch()
    with pytest.raises(CrashError):
        world.attempt(1, 1, _crash_at(step))
    prepared = world.coordinator.prepared
    world.table.is_there = False
    for run in (2, 3):
        with pytest.raises(
            DisagreementError, match=r"epoch 1 .*prepared, and table /tables/silver"
        ):
            world.attempt(1, run)
    assert world.coordinator.prepared == prepared is not None
    world.table.is_there = True
    world.attempt(1, 4)
    world.attempt(2, 4)
    world.check()
    assert [epoch for epoch, _ in world.table.rows] == [0, 1, 2]


def test_no_new_table_takes_the_place_of_one_that_is_gone() -> None:
    """Also in the middle of a run."""
    world = _one_epoch()
    world.table.is_there = False
    for run in (1, 2):
        with pytest.raises(DisagreementError, match=r"epochs up to 0 .*--last-epoch -1 --execute"):
            world.attempt(1, run)
    assert world.coordinator.last_epoch == 0


@pytest.mark.parametrize(("kept", "has"), [(1, "epochs up to 0"), (0, "no epoch")])
def test_an_older_copy_of_the_table_decides_nothing(kept: int, has: str) -> None:
    world = World()
    for epoch in range(3):
        world.attempt(epoch, 1)
    with pytest.raises(CrashError):
        world.attempt(3, 1, _crash_at("after write"))
    prepared, table = world.coordinator.prepared, world.table
    world.table = FakeTable(rows=table.rows[:kept])
    with pytest.raises(DisagreementError, match=f"up to 2 .*/tables/silver has {has} of it"):
        world.attempt(3, 2)
    assert world.coordinator.prepared == prepared is not None
    assert world.table.version == 0, "no fence in a foreign table"
    world.table = table
    world.attempt(3, 3)
    world.check()


def test_an_older_copy_is_found_when_nothing_is_prepared() -> None:
    world = World()
    for epoch in range(3):
        world.attempt(epoch, 1)
    world.table = FakeTable(rows=world.table.rows[:1])
    with pytest.raises(DisagreementError, match="--last-epoch 0 --execute lets the query go on"):
        world.attempt(3, 2)
    world.coordinator.take_over(0)
    world.attempt(3, 2)
    world.attempt(4, 2)
    assert [epoch for epoch, _ in world.table.rows] == [0, 3, 4]


@pytest.mark.parametrize(("kept", "has"), [(0, "no epoch"), (2, "epochs up to 1")])
@pytest.mark.parametrize("step", ["before describe", "flush"])
def test_a_table_that_is_replaced_within_a_run_gets_no_rows(kept: int, has: str, step: str) -> None:
    """By another one, or by an older copy, also while the topics are written: nothing is
    prepared."""
    world = World()
    for epoch in range(3):
        world.attempt(epoch, 1, goes_on=epoch > 0)
    table = world.table
    before, other = dict(vars(table)), FakeTable(rows=table.rows[:kept])

    def replace(name: str) -> None:
        if name == step:
            vars(table).update(vars(other))

    with pytest.raises(DisagreementError, match=f"/tables/silver has {has} of it.*takeover"):
        world.attempt(3, 1, replace, goes_on=True)
    assert len(table.rows) == kept
    assert world.coordinator.prepared is None
    vars(table).update(before)
    world.attempt(3, 2)
    world.check()


def test_a_replaced_table_without_a_history_gets_no_rows_either() -> None:
    world = _one_epoch()
    table = world.table
    world.table = FakeTable(is_history_gone=True)
    with pytest.raises(DisagreementError, match=r"version 1 is not the commit .*the query again"):
        world.attempt(1, 1, goes_on=True)
    assert world.coordinator.prepared is None
    world.table = table
    world.attempt(1, 2)
    world.attempt(2, 2, goes_on=True)
    world.check()


@pytest.mark.parametrize("run", [1, 2])
def test_a_takeover_makes_another_table_the_sinks(run: int) -> None:
    """Also in the middle of a run."""
    world = _one_epoch()
    world.attempt(1, 1, goes_on=True)
    world.table = FakeTable()
    world.coordinator.take_over(-1)
    world.attempt(2, run, goes_on=run == 1)
    world.attempt(3, run, goes_on=True)
    assert [epoch for epoch, _ in world.table.rows] == [2, 3]


@pytest.mark.parametrize("last", [0, 1])
def test_a_takeover_to_an_earlier_epoch_writes_the_later_ones_again(last: int) -> None:
    world = World()
    for epoch in range(3):
        world.attempt(epoch, 1)
    world.coordinator.take_over(last)
    for epoch in range(last + 1, 4):
        world.attempt(epoch, 2)
    again = [*range(3), *range(last + 1, 4)]
    assert [epoch for epoch, _ in world.table.rows] == again
    assert [epoch for epoch, _ in world.coordinator.rows] == again
    world.attempt(4, 3)


def test_a_history_that_is_cleaned_away_stops_no_query() -> None:
    world = _one_epoch()
    world.table.is_history_gone = True
    world.attempt(1, 2)
    world.attempt(1, 3)
    assert [epoch for epoch, _ in world.table.rows] == [0, 1]


def test_a_first_start_needs_no_table() -> None:
    """Its creation follows; the brokers know no epoch, or only one that was aborted."""
    world = World()
    world.table.is_there = False
    with pytest.raises(CrashError):
        world.attempt(0, 1, _crash_at("flush"))
    with pytest.raises(CrashError):
        world.attempt(0, 2, _crash_at("flush"))
    world.table.is_there = True
    world.attempt(0, 3)
    world.check()


def test_tickets_that_began_again_are_found_before_rows_are_lost() -> None:
    world = _one_epoch()
    world.coordinator.ticket = 0
    world.table.version = 1000
    with pytest.raises(SinkFencedError, match="another sink_id"):
        world.attempt(1, 2)
    assert world.coordinator.last_epoch == 0


def test_a_sink_that_is_deleted_before_its_commit_is_no_outage_of_brokers() -> None:
    """No next start would commit the epoch: the brokers have forgotten it."""
    world = _one_epoch()

    def delete(step: str) -> None:
        if step == "before commit":
            raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, "sink 'sink'")

    with pytest.raises(DisagreementError, match=r"epoch 1 .*deleted by hand.*--last-epoch 1 "):
        world.attempt(1, 1, delete)


def _tolerant(world: World, run: int, hook: Hook) -> None:
    with suppress(EpochError):
        world.attempt(1, run, hook)


def _failing(step: str) -> Steps:
    class Failing(Steps):
        def __call__(self, name: str) -> None:
            if name == step:
                raise OSError("disk")

    return Failing()
