"""Worlds with transactional clients under faults; `make sim` runs many, scripts are in
`test_anomalies.py`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest

from sim.plan import LONE, Plan, plan_of, transact
from sim.world import run

FAULTS = {"kill": 1.0, "kill_at_event": 1.0, "isolate": 0.5, "stall": 0.5, "expire": 0.3}
CONFIGS = {"min.insync.replicas": "2", "retention.ms": "-1"}

FOUND = {
    16: "a deposed coordinator refused EndTxn from what it remembered",
    51: "a fenced producer on an older connection was put off for ever",
    55: "a request to a coordinator that died was never answered",
}
"""Seeds of `make sim` that once failed, with the reason."""


def held(seeds: Iterable[int]) -> Counter[str]:
    """What clients did in these worlds, in which transactions hold."""
    counts = Counter[str]()
    for seed in seeds:
        plan = Plan(chaos_s=15.0, fault_pause_s=2.5, faults=FAULTS, topic_configs=CONFIGS)
        transact(plan, producers=3)
        outcome = run(seed, plan=plan)
        assert outcome.violation is None, outcome.violation
        counts.update(outcome.transactions)
    return counts


def test_transactions_hold_while_brokers_die() -> None:
    counts = held([0])
    assert counts["committed"] > 5, counts


@pytest.mark.long
def test_transactions_hold_in_worlds_of_every_kind_of_fault() -> None:
    counts = held(range(3))
    assert counts["committed"] > 20 and counts["aborted"] > 5, counts
    assert counts["copied"] > 5, "the copier works"
    assert counts["fenced"] > 0, "second instances take over"


def held_alone(seeds: Iterable[int]) -> Counter[str]:
    """As `held`, in worlds whose logs of transactions have no followers."""
    counts = Counter[str]()
    for seed in seeds:
        outcome = run(seed, plan=plan_of(seed, LONE))
        assert outcome.violation is None, f"`make sim SEED={seed} ARGS='--only lone'` tells"
        counts.update(outcome.transactions)
    return counts


def test_transactions_hold_where_coordinators_have_no_followers() -> None:
    counts = held_alone(range(3))
    assert counts["committed"] > 20 and counts["aborted"] > 5, counts
    assert counts["copied"] > 5, "the copier works"


@pytest.mark.long
def test_transactions_hold_in_many_worlds_without_followers() -> None:
    counts = held_alone(range(3, 20))
    assert counts["committed"] > 200, counts


FIRST, *OTHERS = FOUND


@pytest.mark.parametrize(
    "seed", [FIRST, *(pytest.param(seed, marks=pytest.mark.long) for seed in OTHERS)]
)
def test_a_seed_that_failed_holds(seed: int) -> None:
    outcome = run(seed)
    assert outcome.violation is None, f"`python -m sim --seed {seed}` prints the log"
    assert outcome.transactions["committed"] > 0, f"{seed} has transactional clients"
