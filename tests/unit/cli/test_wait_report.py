"""A command without progress says what it waits for."""

from __future__ import annotations

import pytest

from headwater.cli.wait_report import StallWatch, Wait
from headwater.testing.clocks import ManualClock


def seconds(watch: StallWatch, clock: ManualClock, count: int) -> None:
    for _ in range(count):
        watch.check()
        clock.advance(1_000)


def test_a_wait_that_lasts_is_shown_at_growing_intervals(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = ManualClock()
    watch = StallWatch(lambda: Wait(1, "no acknowledgement"), clock)
    seconds(watch, clock, 3)
    assert capsys.readouterr().err == ""
    seconds(watch, clock, 30)
    assert capsys.readouterr().err.splitlines() == [
        f"headwater: waiting for {after} s: no acknowledgement" for after in (3, 9, 27)
    ]


def test_progress_ends_a_wait(capsys: pytest.CaptureFixture[str]) -> None:
    clock = ManualClock()
    waits = iter([Wait(1, "a"), Wait(1, "a"), Wait(2, "b"), Wait(2, "b"), None, Wait(2, "b"), None])
    watch = StallWatch(lambda: next(waits), clock)
    for _ in range(7):
        watch.check()
        clock.advance(2_000)
    assert capsys.readouterr().err == ""
