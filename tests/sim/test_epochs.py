"""Worlds with Spark queries under faults; `make sim` runs many, scripts are in
`test_anomalies.py`."""

from __future__ import annotations

from collections import Counter

from sim.plan import Plan, write_epochs
from sim.world import run

FAULTS = {"kill": 1.0, "kill_at_event": 1.0, "isolate": 0.5, "stall": 0.5, "expire": 0.3}
CONFIGS = {"min.insync.replicas": "2", "retention.ms": "-1"}


def test_epochs_are_exactly_once_while_brokers_and_drivers_die() -> None:
    counts = Counter[str]()
    for seed in range(3, 6):  # in which checkpoints are rewound, too
        plan = Plan(chaos_s=15.0, fault_pause_s=2.5, faults=FAULTS, topic_configs=CONFIGS)
        write_epochs(plan, 2)
        outcome = run(seed, plan=plan)
        assert outcome.violation is None, outcome.violation
        counts.update(outcome.transactions)
    assert counts["epochs committed"] > 30 and counts["epochs prepared"] > 10, counts
    assert counts["epochs aborted"] > 2 and counts["tasks retried"] > 5, counts
    assert counts["zombies"] > 3 and counts["runs fenced"] > 2, counts
    assert counts["rewound"] > 0, counts
