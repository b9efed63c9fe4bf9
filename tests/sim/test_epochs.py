"""Worlds with Spark queries under faults; `make sim` runs many, scripts are in
`test_anomalies.py`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest

from sim.plan import Plan, write_epochs
from sim.world import run

FAULTS = {"kill": 1.0, "kill_at_event": 1.0, "isolate": 0.5, "stall": 0.5, "expire": 0.3}
CONFIGS = {"min.insync.replicas": "2", "retention.ms": "-1"}


def epochs_of(seeds: Iterable[int]) -> Counter[str]:
    """What happened in these worlds, in which nothing is lost, doubled or seen early."""
    counts = Counter[str]()
    for seed in seeds:
        plan = Plan(chaos_s=15.0, fault_pause_s=2.5, faults=FAULTS, topic_configs=CONFIGS)
        write_epochs(plan, 2)
        outcome = run(seed, plan=plan)
        assert outcome.violation is None, outcome.violation
        counts.update(outcome.transactions)
    return counts


def test_epochs_are_exactly_once_while_brokers_and_a_driver_die() -> None:
    counts = epochs_of([3])
    assert counts["epochs committed"] > 5 and counts["epochs prepared"] > 0, counts


@pytest.mark.long
def test_epochs_are_exactly_once_in_worlds_of_every_kind_of_death() -> None:
    counts = epochs_of(range(3, 6))  # in which checkpoints are rewound, too
    assert counts["epochs committed"] > 30 and counts["epochs prepared"] > 10, counts
    assert counts["epochs aborted"] > 2 and counts["tasks retried"] > 5, counts
    assert counts["zombies"] > 3 and counts["runs fenced"] > 2, counts
    assert counts["rewound"] > 0, counts
