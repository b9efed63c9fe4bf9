"""A few worlds under faults, as part of the unit tests; `make sim` lives through many."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from sim.world import run

SEEDS = range(3)

FOUND = {
    25: "the last in-sync replica lost its power and led without what the others had",
    129: "back before its old session had ended, a broker led what its power loss had torn",
    46: "the last in-sync replica lost its disk: who held everything was not asked to lead",
}
"""Seeds that once failed, and of what."""


@pytest.mark.parametrize("seed", [*SEEDS, *FOUND])
def test_all_invariants_hold(seed: int) -> None:
    outcome = run(seed)
    assert outcome.violation is None, f"`python -m sim --seed {seed}` tells the story"
    assert outcome.acked > 10


def _log_in_a_process(seed: int, hash_seed: str) -> str:
    code = f"from sim.world import run; print('\\n'.join(run({seed}).log))"
    paths = os.pathsep.join(sys.path)
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": paths}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not done.stderr, "a world ends without a word"
    return done.stdout


@pytest.mark.parametrize("seed", [3, 20439])
def test_the_same_seed_gives_the_same_log_in_every_process(seed: int) -> None:
    """20439: a clean stop closes many connections, whose order once went by addresses."""
    first = _log_in_a_process(seed, "1")
    assert "digest" in first.splitlines()[-1]
    assert first == _log_in_a_process(seed, "2")
