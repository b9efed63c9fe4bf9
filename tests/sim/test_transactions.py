"""Worlds with transactional clients under faults; `make sim` runs many, scripts are in
`test_anomalies.py`."""

from __future__ import annotations

from collections import Counter

from sim.plan import Plan, transact
from sim.world import run

FAULTS = {"kill": 1.0, "kill_at_event": 1.0, "isolate": 0.5, "stall": 0.5, "expire": 0.3}
CONFIGS = {"min.insync.replicas": "2", "retention.ms": "-1"}

FOUND = {
    16: "a deposed coordinator refused EndTxn from what it remembered",
    51: "a fenced producer on an older connection was put off for ever",
    55: "a request to a coordinator that died was never answered",
}
"""Seeds of `make sim` that once failed, with the reason."""


def test_transactions_hold_while_brokers_die() -> None:
    counts = Counter[str]()
    for seed in range(3):
        plan = Plan(chaos_s=15.0, fault_pause_s=2.5, faults=FAULTS, topic_configs=CONFIGS)
        transact(plan, producers=3)
        outcome = run(seed, plan=plan)
        assert outcome.violation is None, outcome.violation
        counts.update(outcome.transactions)
    assert counts["committed"] > 20 and counts["aborted"] > 5, counts
    assert counts["copied"] > 5, "the copier works"
    assert counts["fenced"] > 0, "second instances take over"


def test_seeds_that_failed_hold() -> None:
    for seed in FOUND:
        outcome = run(seed)
        assert outcome.violation is None, f"`python -m sim --seed {seed}` prints the log"
        assert outcome.transactions["committed"] > 0, f"{seed} has transactional clients"
