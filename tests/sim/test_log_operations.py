"""Log operations while brokers fail: moves between folders, deleted records, compaction."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from headwater_broker.replica.partition import Partition
from sim.invariants import ViolationError
from sim.log_operations import FOLDERS, Compacting, Deleting, Kept, Moving
from sim.plan import Plan
from sim.world import Outcome, run

CONFIGS = {
    "min.insync.replicas": "2",
    "retention.ms": "-1",
    "segment.bytes": "900",
    "message.timestamp.after.max.ms": str(2**62),
}
SEEDS = range(1, 4)
FAULTS = {"kill": 0.6, "kill_at_access": 0.6, "power": 0.5, "isolate": 0.3}


def live(kind: type[Kept], seed: int, *, folders: bool = False, **configs: str) -> Outcome:
    named = {name.replace("_", "."): value for name, value in configs.items()}
    plan = Plan(
        chaos_s=10.0,
        fault_pause_s=1.0,
        produce_pause_s=0.1,
        faults={**FAULTS, "folder": 0.3} if folders else FAULTS,
        topic_configs={**CONFIGS, **named},
        properties={
            "log.cleaner.backoff.ms": "300",
            "log.retention.check.interval.ms": "1500",
            **({"log.dirs": ",".join(FOLDERS)} if folders else {}),
        },
    )
    outcome = run(seed, plan=plan, kind=kind)
    story = "\n".join((str(outcome.violation), *outcome.log[-30:]))
    assert outcome.violation is None, story
    return outcome


def total(outcomes: list[Outcome], name: str) -> int:
    """The sum of the count `name` over these outcomes, which must have enough faults."""
    assert sum(sum(outcome.counts.values()) for outcome in outcomes) > 4 * len(outcomes)
    return sum(outcome.administered.get(name, 0) for outcome in outcomes)


def test_the_rule_of_deletions_knows_what_may_go() -> None:
    plan = Plan(topic_configs={**CONFIGS, "retention.bytes": "2000"})
    world = Deleting(0, plan)
    (broker, *_), rule = world.brokers, world.shortened

    def look(start: int, bases: list[int], size: int, local: int = 0, mark: int = 99) -> None:
        segments = [SimpleNamespace(base_offset=b, file=SimpleNamespace(size_bytes=size))
                    for b in bases]  # fmt: skip
        log = SimpleNamespace(
            log_start_offset=start, local_log_start_offset=max(local, start), bases=bases,
            segments=segments, size_bytes=size * len(bases),
        )  # fmt: skip
        seen = SimpleNamespace(partition=0, log=log, high_watermark=mark)
        rule.look(broker, cast(Partition, seen))

    look(0, [0, 10, 20, 30], 900)
    look(10, [10, 20, 30], 900)
    for start, bases, local in ((20, [20, 30], 0), (11, [10, 20, 30], 0), (10, [10, 20, 30], 11)):
        with pytest.raises(ViolationError, match="NothingElseIsDeleted"):
            look(start, bases, 900, local)
    rule.asked(0, 15)
    look(15, [10, 20, 30], 900)
    with pytest.raises(ViolationError):
        look(15, [20, 30], 900)
    with pytest.raises(ViolationError):
        look(99, [30], 900)
    rule.asked(0, -1)
    look(99, [30], 900)


def test_replicas_move_between_folders_while_brokers_fail() -> None:
    outcomes = [live(Moving, seed, folders=True) for seed in SEEDS]
    assert total(outcomes, "NONE") > 20


def test_records_are_deleted_while_brokers_fail() -> None:
    outcomes = [live(Deleting, seed, retention_bytes="4000") for seed in SEEDS]
    assert total(outcomes, "NONE") > 15


def test_keys_are_compacted_while_brokers_fail() -> None:
    outcomes = [
        live(
            Compacting, seed, cleanup_policy="compact", min_cleanable_dirty_ratio="0.1",
            delete_retention_ms="1500",
        )
        for seed in SEEDS
    ]  # fmt: skip
    assert total(outcomes, "dropped") > 500
