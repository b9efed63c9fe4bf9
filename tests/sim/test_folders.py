"""Data folders that fail while a broker runs: other brokers take over without a restart."""

from __future__ import annotations

from typing import Any

import pytest

from sim import fault_injection
from sim.plan import Plan
from sim.world import World, run

FAILS_FOR_S = 60.0
"""Longer than a world lasts."""
GONE_S = 15.0
"""The first folder fails within a second or two; this is the time after it."""
LAST_S = 8.0
CONFIGS = {"min.insync.replicas": "2", "retention.ms": "-1"}


def plan(folders: str, chaos_s: float = 25.0, **faults: float) -> Plan:
    return Plan(
        chaos_s=chaos_s,
        faults={"folder": 1.0, **faults},
        topics={"log": 4},
        topic_configs=CONFIGS,
        properties={"log.dirs": folders},
    )


class Watched(World):
    """Counts the records of each partition in the last seconds under faults."""

    taken_last: list[int]

    def work(self) -> None:
        """The time under faults, with counts at its end."""
        self.injector.begin()
        self.until(self.plan.chaos_s - LAST_S)
        before = [len(ledger.acked) for ledger in self.ledgers.values()]
        self.until(LAST_S)
        now = [len(ledger.acked) for ledger in self.ledgers.values()]
        Watched.taken_last = [b - a for a, b in zip(before, now, strict=True)]


@pytest.mark.parametrize("folders", ["/disk", "/disk/a,/disk/b"])
@pytest.mark.parametrize("seed", range(2))
def test_partitions_go_on_while_a_folder_is_gone(
    monkeypatch: pytest.MonkeyPatch, folders: str, seed: int
) -> None:
    """The first failed folder stays failed, and its leaders move to other brokers."""
    monkeypatch.setattr(fault_injection, "FOLDER_S", (FAILS_FOR_S, FAILS_FOR_S))
    outcome = run(seed, plan=plan(folders, GONE_S), kind=Watched)
    assert outcome.violation is None, _story(outcome)
    assert outcome.counts == {"folder": 1}
    assert len(Watched.taken_last) == 4
    assert min(Watched.taken_last) > LAST_S, Watched.taken_last


@pytest.mark.parametrize("seed", range(2))
def test_all_invariants_hold_with_folders_that_come_and_go(seed: int) -> None:
    outcome = run(seed, plan=plan("/disk/a,/disk/b", kill=0.5, isolate=0.3, power=0.3))
    assert outcome.violation is None, _story(outcome)
    assert outcome.counts["folder"] >= 1


def _story(outcome: Any) -> str:
    return "\n".join((str(outcome.violation), *outcome.log[-30:]))
