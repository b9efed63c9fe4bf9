"""Two releases side by side: rolling upgrade and downgrade while records are produced."""

from __future__ import annotations

import pytest

from sim.rolling import PLAN, CarelessWorld, RaisedWorld, RollingWorld
from sim.world import run

SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))]

SPOKEN = {"next to next in format 1", "next to today in format 0", "today to next in format 0"}
LED = {"today leads next", "next leads today", "next leads next"}
TOOK = {
    "next took node",
    "next took field",
    "next took tagged field",
    "next took inner tagged field",
    "today took node",
}


@pytest.mark.parametrize("seed", SEEDS)
def test_brokers_of_two_releases_live_together(seed: int) -> None:
    outcome = run(seed, plan=PLAN, kind=RollingWorld)
    assert outcome.violation is None, "\n".join(outcome.log[-30:])
    assert outcome.counts["steps"] == 7, "the start, three brokers up, three down"
    met = {name for name, times in outcome.counts.items() if times}
    assert met >= SPOKEN | LED | TOOK, "every pair of releases met, and what is new was in use"
    assert "next to today in format 1" not in met


def test_a_change_that_old_brokers_cannot_read_is_seen() -> None:
    outcome = run(1, plan=PLAN, kind=CarelessWorld)
    assert outcome.violation is not None
    assert outcome.violation.name == "RollsOn"


@pytest.mark.parametrize("seed", SEEDS)
def test_brokers_too_old_for_a_node_refuse_it_and_leave_it_as_it_is(seed: int) -> None:
    outcome = run(seed, plan=PLAN, kind=RaisedWorld, tells=True)
    assert outcome.violation is None, "\n".join(outcome.log[-30:])
    assert outcome.counts["steps"] == 9, "the start, three up, three again, one down, one up"
    assert outcome.counts["raised leads today"] >= 1, "old brokers follow a newer controller"
    refusal = "state: version 2, this broker reads up to 1: run the newer Headwater that wrote it"
    assert any(refusal in line for line in outcome.log)
