"""`headwater reassign`: throttles, log dirs, reassignments that fail or are cancelled."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from headwater import Admin
from headwater.cli.reassign.progress import Pacing
from headwater_broker.runtime.loop_lag import LagProbe
from headwater_broker.telemetry.leader_end_offsets import LeaderEndOffsets
from headwater_broker.telemetry.metrics import BrokerCollector
from unit.cli.test_admin_commands import WRITTEN, answer, c, fill, rate, read, run
from whole_cluster import ServedCluster

__all__ = ["c"]
SLOW = "1048576"
LEADER_RATE = "leader.replication.throttled.rate"
THROTTLES = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")


def interrupted(act: Callable[[], object]) -> Pacing:
    """The pacing of `--wait`, with an action at its first pause."""
    first = iter([act])

    def sleep(_seconds: float) -> None:
        next(first, lambda: None)()

    return Pacing(poll_s=0.05, settle_s=0.5, sleep=sleep)


def plan_of(folder: Path, topic: str, *replicas: int, **more: Any) -> str:
    path = folder / f"{topic}.json"
    row = {"topic": topic, "partition": 0, "replicas": replicas, **more}
    path.write_text(json.dumps({"version": 1, "partitions": [row]}))
    return str(path)


def throttled(c: ServedCluster, topic: str) -> list[str | None]:
    with Admin(c.bootstrap) as admin:
        found = admin.describe_configs("topic", topic)
    return [found[name].value for name in THROTTLES]


def test_a_cancelled_move_takes_its_throttles_along(c: ServedCluster, tmp_path: Path) -> None:
    run(c, "topics", "create", "slow", "--replica-assignment", "0:1")
    plan = plan_of(tmp_path, "slow", 2, 0)
    c.cluster.cut_off.add(2)  # it lives, and does not follow

    def begin() -> None:
        shown = run(c, "reassign", "execute", plan, "--throttle", SLOW).stdout
        assert f"`headwater reassign verify {plan}`" in shown, "or the throttles would stay"
        assert throttled(c, "slow") == ["0:0,0:1", "0:2"]

    begin()
    run(c, "reassign", "cancel", plan, "--preserve-throttles")
    assert throttled(c, "slow") == ["0:0,0:1", "0:2"]
    begin()
    found = answer(c, "reassign", "cancel", plan)
    assert [row["error"] for row in found["results"]] == [None]
    assert throttled(c, "slow") == ["", ""]
    c.until(lambda: rate(c.cluster.brokers[0], "leader") > int(SLOW), "brokers are free, too")
    verified = answer(c, "reassign", "verify", plan, code=1)
    assert verified["partitions"][0]["status"] == "failed"


@pytest.mark.parametrize("replicas", [(1, 9), ()])
def test_a_plan_that_is_refused_leaves_no_throttle(
    c: ServedCluster, tmp_path: Path, replicas: tuple[int, ...]
) -> None:
    """One plan names an unknown broker, the other no replicas: both left throttles behind."""
    topic = f"refused-{len(replicas)}"
    run(c, "topics", "create", topic, "--replica-assignment", "0:1")
    run(c, "reassign", "execute", plan_of(tmp_path, topic, *replicas), "--throttle", "7", code=1)
    assert throttled(c, topic) == ["", ""]
    with Admin(c.bootstrap) as admin:
        configs = [admin.describe_configs("broker", str(id_)) for id_ in (0, 1)]
    sides = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
    assert [found[side].is_default for found in configs for side in sides] == [True] * 4


def gauge(broker: Any, name: str) -> float:
    """A gauge of a broker's metrics."""
    others = LeaderEndOffsets(broker.view, cast(Any, None), "PLAINTEXT")
    collector = BrokerCollector(broker.services, cast(LagProbe, None), broker.controller, others)
    found = next(family for family in collector.collect() if family.name == f"headwater_{name}")
    return float(found.samples[0].value)


def test_a_partition_that_moves_is_not_under_replicated(c: ServedCluster, tmp_path: Path) -> None:
    run(c, "topics", "create", "slow", "--replica-assignment", "0:1", "--config",
        "min.insync.replicas=2")  # fmt: skip
    first = c.cluster.brokers[0]

    def shown(only: str) -> list[str]:
        return [row["topic"] for row in answer(c, "topics", "describe", "slow", only)]

    c.cluster.cut_off.add(2)
    run(c, "reassign", "execute", plan_of(tmp_path, "slow", 2, 0))
    c.until(lambda: len(first.replicas.partitions["slow", 0].replicas) == 3, "it moves")
    assert (shown("--under-replicated"), shown("--at-min-isr")) == ([], ["slow"])
    assert "under-replicated" not in run(c, "topics", "describe", "slow").stdout
    assert gauge(first, "under_replicated_partitions") == 0
    c.stop(1)
    c.until(lambda: c.state("slow").isr == (0,), "one in sync")
    assert shown("--under-replicated") == shown("--under-min-isr-partitions") == ["slow"]
    assert shown("--at-min-isr") == shown("--unavailable-partitions") == []
    assert "under-replicated" in run(c, "topics", "describe", "slow").stdout
    assert gauge(first, "under_replicated_partitions") == 1


def test_an_offline_partition_is_under_replicated(c: ServedCluster) -> None:
    run(c, "topics", "create", "single", "--replica-assignment", "1")
    c.stop(1)
    c.until(lambda: c.state("single").leader_id == -1, "offline")
    for only in ("--under-replicated", "--unavailable", "--under-min-isr-partitions"):
        assert [row["topic"] for row in answer(c, "topics", "describe", "single", only)] == [
            "single"
        ]
    assert answer(c, "topics", "describe", "single", "--at-min-isr") == []


def test_throttles_stay_while_another_move_is_under_way(c: ServedCluster, tmp_path: Path) -> None:
    c.cluster.cut_off.add(2)
    for name in ("one", "two"):
        run(c, "topics", "create", name, "--replica-assignment", "0:1")
        run(c, "reassign", "execute", plan_of(tmp_path, name, 2, 0), "--throttle", SLOW,
            "--additional")  # fmt: skip
    run(c, "reassign", "cancel", plan_of(tmp_path, "one", 2, 0))
    assert throttled(c, "one") == ["", ""], "no later command would remove them"
    assert throttled(c, "two") == ["0:0,0:1", "0:2"]
    assert LEADER_RATE in answer(c, "configs", "describe", "broker", "0")
    run(c, "reassign", "cancel", plan_of(tmp_path, "two", 2, 0))
    assert throttled(c, "two") == ["", ""]
    assert LEADER_RATE not in answer(c, "configs", "describe", "broker", "0")


def test_a_second_plan_for_a_topic_slows_the_first_ones_moves_too(
    c: ServedCluster, tmp_path: Path
) -> None:
    c.cluster.cut_off.add(2)
    run(c, "topics", "create", "both", "--replica-assignment", "0:1,1:0")
    for index in (0, 1):
        plan = plan_of(tmp_path, "both", 2, 0, partition=index)
        run(c, "reassign", "execute", plan, "--throttle", SLOW, "--additional")
    assert throttled(c, "both") == ["0:0,0:1,1:1,1:0", "0:2,1:2"]
    run(c, "reassign", "execute", plan, "--throttle", "77", "--additional")
    assert throttled(c, "both") == ["0:0,0:1,1:0,1:1", "0:2,1:2"], "another rate, the same replicas"
    run(c, "reassign", "cancel", plan)
    assert throttled(c, "both") == ["0:0,0:1,1:0,1:1", "0:2,1:2"], "partition 0 still moves"


def test_a_broker_that_is_down_does_not_come_back_throttled(
    c: ServedCluster, tmp_path: Path
) -> None:
    """Neither one that was to get a replica, nor one that was to lose it."""
    run(c, "topics", "create", "slow", "--replica-assignment", "0:1")
    plan = plan_of(tmp_path, "slow", 0, 2)
    c.cluster.cut_off.add(2)
    run(c, "reassign", "execute", plan, "--throttle", SLOW)
    for broker in (1, 2):
        assert LEADER_RATE in answer(c, "configs", "describe", "broker", str(broker))
        c.stop(broker)
    c.until(lambda: c.cluster.brokers[0].view.brokers.keys() == {0}, "their death is known")
    run(c, "reassign", "cancel", plan)
    for broker in (1, 2):
        c.start(broker)
        c.until(lambda b=broker: b in c.cluster.brokers[0].view.brokers, "it is back")
        assert LEADER_RATE not in answer(c, "configs", "describe", "broker", str(broker))


def test_a_reassignment_that_is_cancelled_fails_the_wait(c: ServedCluster, tmp_path: Path) -> None:
    run(c, "topics", "create", "slow", "--replica-assignment", "0:1")
    plan = plan_of(tmp_path, "slow", 2, 0)
    c.cluster.cut_off.add(2)
    with Admin(c.bootstrap) as admin:
        pacing = interrupted(lambda: admin.alter_partition_reassignments({("slow", 0): None}))
        asked = ("execute", plan, "--wait", "--throttle", SLOW)
        ended = run(c, "reassign", *asked, code=1, settings=pacing)
    assert "slow-0: failed: its replicas are [0, 1], planned were [2, 0]" in ended.stderr
    assert "Reassigned" not in ended.stdout
    assert throttled(c, "slow") == ["", ""]


def test_a_move_between_folders_is_cancelled(c: ServedCluster, tmp_path: Path) -> None:
    run(c, "topics", "create", "between", "--replica-assignment", "1")
    fill(c, "between")
    broker = c.cluster.brokers[1]
    before = broker.logs.logs["between", 0].path.rpartition("/")[0]
    there = next(path for path, _, _ in broker.logs.by_folder() if path != before)
    plan = plan_of(tmp_path, "between", 1, log_dirs=[there])
    broker.services.alter_log_dirs.tick = lambda: None  # copies stay where they are
    run(c, "reassign", "execute", plan, "--replica-alter-log-dirs-throttle", "1")
    assert answer(c, "reassign", "verify", plan)["log_dirs"] == [
        f"between-0 on broker 1: in progress, to {there}"
    ]
    assert "between-0 on broker 1" in run(c, "reassign", "cancel", plan).stdout
    assert answer(c, "reassign", "verify", plan, code=1)["log_dirs"] == [
        f"between-0 on broker 1: failed, not in {there} and not on its way"
    ]
    assert broker.logs.logs["between", 0].path.rpartition("/")[0] == before
    assert read(c, "between") == WRITTEN
    key = "replica.alter.log.dirs.io.max.bytes.per.second"
    assert key not in answer(c, "configs", "describe", "broker", "1")
    assert "no reassignment of the plan is in progress" in run(c, "reassign", "cancel", plan).stdout


def test_a_copy_that_is_cancelled_fails_the_wait(c: ServedCluster, tmp_path: Path) -> None:
    run(c, "topics", "create", "between", "--replica-assignment", "1")
    broker = c.cluster.brokers[1]
    before = broker.logs.logs["between", 0].path.rpartition("/")[0]
    there = next(path for path, _, _ in broker.logs.by_folder() if path != before)
    plan = plan_of(tmp_path, "between", 1, log_dirs=[there])
    broker.services.alter_log_dirs.tick = lambda: None
    with Admin(c.bootstrap) as admin:
        pacing = interrupted(lambda: admin.alter_replica_log_dirs(1, {("between", 0): before}))
        ended = answer(c, "reassign", "execute", plan, "--wait", code=1, settings=pacing)
    why = f"failed, not in {there} and not on its way"
    assert ended["failed"] == {"between-0 on broker 1": why}


def test_a_broker_that_is_down_refuses_a_log_dir_at_once(
    c: ServedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was asked for a minute."""
    run(c, "topics", "create", "far", "--replica-assignment", "0:1")
    plan = plan_of(tmp_path, "far", 0, 1, log_dirs=["any", "/data/2"])
    c.stop(1)
    asked: list[int] = []
    real = Admin.alter_replica_log_dirs

    def alter(admin: Admin, broker: int, targets: Any) -> Any:
        asked.append(broker)
        return real(admin, broker, targets)

    monkeypatch.setattr(Admin, "alter_replica_log_dirs", alter)
    ended = run(c, "reassign", "execute", plan, code=1)
    assert (
        "far-0 on broker 1: BROKER_NOT_AVAILABLE: broker 1 does not run: start it" in ended.stderr
    )
    assert asked == []


def test_a_folder_that_is_not_there_is_named_beside_those_that_are(
    c: ServedCluster, tmp_path: Path
) -> None:
    run(c, "topics", "create", "far", "--replica-assignment", "0")
    folders = [path for path, _, _ in c.cluster.brokers[0].logs.by_folder()]
    plan = plan_of(tmp_path, "far", 0, log_dirs=["/nowhere"])
    reason = run(c, "reassign", "execute", plan, code=1).stderr
    assert "broker 0 has no log dir /nowhere: its log.dirs are" in reason
    assert all(path in reason for path in folders)
