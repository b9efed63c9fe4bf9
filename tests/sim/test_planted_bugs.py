"""The simulator detects each planted bug within a few seeds."""

from __future__ import annotations

import pytest

from sim.planted import PLANTED, Planted
from sim.planted_epochs import PLANTED_EPOCHS
from sim.planted_groups import PLANTED_GROUPS
from sim.planted_offsets import PLANTED_OFFSETS
from sim.planted_rights import PLANTED_RIGHTS
from sim.planted_shares import PLANTED_SHARES
from sim.planted_transactions import PLANTED_TRANSACTIONS
from sim.world import run

SEEDS_MAX = 20
BUGS = (
    *PLANTED, *PLANTED_TRANSACTIONS, *PLANTED_EPOCHS, *PLANTED_OFFSETS, *PLANTED_RIGHTS,
    *PLANTED_GROUPS, *PLANTED_SHARES,
)  # fmt: skip


@pytest.mark.parametrize(
    "bug",
    [pytest.param(bug, marks=pytest.mark.long) if bug.is_long else bug for bug in BUGS],
    ids=lambda bug: bug.name.replace(" ", "-"),
)
def test_a_planted_bug_is_seen(bug: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    bug.plant(monkeypatch)
    for seed in range(bug.first_seed, bug.first_seed + SEEDS_MAX):
        outcome = run(seed, plan=bug.plan(), kind=bug.kind)
        if outcome.violation is not None:
            assert outcome.violation.name in bug.seen_by, outcome.violation
            return
    pytest.fail(f"{bug.name}: nothing was seen in {SEEDS_MAX} seeds")


@pytest.mark.long  # a minute in all; the other files hold such worlds in every run
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name.replace(" ", "-"))
def test_without_it_the_same_world_holds(bug: Planted) -> None:
    assert run(0, plan=bug.plan(chaos_s=6.0), kind=bug.kind).violation is None
