"""A few simulated worlds under faults; `make sim` runs many."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from functools import partial

import pytest

from sim.plan import plan_of
from sim.world import run

SEEDS = range(3)
long_case = partial(pytest.param, marks=pytest.mark.long)

FOUND = {
    25: "the last in-sync replica lost power and led without records that others had",
    7: "a topic was deleted while its folder had failed, and came back with the folder",
    46: "the last in-sync replica lost its disk: a replica with all records was not elected",
}
"""Seeds that once failed, with the reason."""

FOUND_LONG = {
    129: "back before its old session had ended, a broker led with a torn log",
    225: "a leader of a new partition died before other replicas got `is_new`",
}
"""Those whose worlds take longest."""

ADMINISTERED = (18, 31)
"""Seeds with an admin client, which makes every kind of request in one of them. Choose others when
the order of events changes."""

SAME = [(3,), long_case((6, 20439))]
"""6 has an admin. 20439: a clean stop closes connections, once in the order of their addresses."""


@pytest.mark.parametrize("seed", [*SEEDS, *FOUND, *(long_case(seed) for seed in FOUND_LONG)])
def test_all_invariants_hold(seed: int) -> None:
    outcome = run(seed)
    assert outcome.violation is None, f"`python -m sim --seed {seed}` prints the log"
    assert outcome.acked > 10


@pytest.mark.parametrize(
    ("seed", "assignor"),
    [(23, "cooperative-sticky"), long_case(9, "roundrobin"), long_case(43, "range"),
     long_case(13, "sticky")],
)  # fmt: skip
def test_a_classic_group_has_each_partition_once(seed: int, assignor: str) -> None:
    plan = plan_of(seed, "classic")
    assert plan.assignor == assignor
    outcome = run(seed, plan=plan)
    assert outcome.violation is None, f"`make sim SEED={seed} ARGS='--only classic'` tells"
    assert min(outcome.groups[what] for what in ("joined", "taken", "committed")) > 2


def test_what_an_admin_began_is_finished_whoever_dies() -> None:
    done, strikes = Counter[str](), 0
    for seed in ADMINISTERED:
        outcome = run(seed)
        assert outcome.violation is None, f"`python -m sim --seed {seed}` prints the log"
        done.update(outcome.administered)
        strikes += outcome.counts.get("strike", 0)
    assert done.keys() >= {"moved", "made", "deleted", "grown", "configured", "elected"}
    assert strikes > 5, "controllers died while they worked"


def _start(hash_seed: str, seeds: tuple[int, ...]) -> subprocess.Popen[str]:
    """A process that prints the logs of the seeds."""
    code = f"from sim.world import run\nfor s in {seeds}: print('\\n'.join(run(s).log))"
    paths = os.pathsep.join(sys.path)
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": paths}
    command = [sys.executable, "-c", code]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True)


@pytest.mark.parametrize("seeds", SAME)
def test_the_same_seed_gives_the_same_log_in_every_process(seeds: tuple[int, ...]) -> None:
    logs = []
    for process in [_start("1", seeds), _start("2", seeds)]:  # side by side
        log, errors = process.communicate()
        assert process.returncode == 0, errors
        assert not errors, "a world ends without a word"
        logs.append(log.splitlines())
    assert sum(", digest " in line for line in logs[0]) == len(seeds)
    assert "digest" in logs[0][-1]
    assert logs[0] == logs[1]
