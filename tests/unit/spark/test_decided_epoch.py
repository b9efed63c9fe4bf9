"""Epochs that a table decides: every crash, every pair of drivers that race."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from headwater.client.blocking.epoch_client import SinkFencedError
from headwater.client.epoch_errors import EpochError
from headwater_spark.sink.decided_epoch import (
    DisagreementError,
    PendingCommitError,
    UndecidedEpochError,
)
from unit.spark.decided_epochs import CrashError, Hook, World, nothing


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


def after_a_crash_when_prepared() -> World:
    world = World()
    world.attempt(0, 1)
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


STEPS = steps_of(World(), 0, 1)
RECOVERY_STEPS = steps_of(after_a_crash_when_prepared(), 1, 2)


def test_the_order_of_the_steps() -> None:
    calls = [step.removeprefix("before ") for step in STEPS if not step.startswith("after")]
    assert calls == [
        "allocate_ticket", "describe", "last_epoch", "join", "flush", "prepare", "write", "commit",
    ]  # fmt: skip


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


def test_tickets_that_began_again_are_found_before_rows_are_lost() -> None:
    world = _one_epoch()
    world.coordinator.ticket = 0
    world.table.version = 1000
    with pytest.raises(SinkFencedError, match="another sink_id"):
        world.attempt(1, 2)
    assert world.coordinator.last_epoch == 0


def _one_epoch() -> World:
    world = World()
    world.attempt(0, 1)
    return world


def _tolerant(world: World, run: int, hook: Hook) -> None:
    with suppress(EpochError):
        world.attempt(1, run, hook)


def _failing(step: str) -> Steps:
    class Failing(Steps):
        def __call__(self, name: str) -> None:
            if name == step:
                raise OSError("disk")

    return Failing()
