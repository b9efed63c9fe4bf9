"""ACLs that change while brokers die and lose their ZooKeeper sessions."""

from __future__ import annotations

from collections import Counter

from sim.rights import Guarded, guarded_plan
from sim.world import run

SEEDS = range(1, 5)
IDLE = 118
"""A follower truncated in a partition without more records: its high watermark stayed behind."""


def test_brokers_decide_as_zookeeper_says_and_denied_records_are_never_written() -> None:
    done, faults = Counter[str](), Counter[str]()
    for seed in SEEDS:
        outcome = run(seed, plan=guarded_plan(15.0), kind=Guarded)
        story = "\n".join((str(outcome.violation), *outcome.log[-30:]))
        assert outcome.violation is None, story
        done.update(outcome.administered)
        faults.update(outcome.counts)
    assert done["added DENY"] >= 4 and done["removed DENY"] >= 4
    assert done["written"] > 50 and done["refused"] > 50
    assert faults["expire"] > 3 and faults["strike"] > 0


def test_a_follower_that_truncated_gets_the_high_watermark_of_an_idle_partition() -> None:
    outcome = run(IDLE, plan=guarded_plan(), kind=Guarded)
    assert outcome.violation is None, "\n".join((str(outcome.violation), *outcome.log[-30:]))
