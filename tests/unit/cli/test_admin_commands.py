"""`headwater topics|configs|groups|reassign|elect` over sockets, against three brokers."""

from __future__ import annotations

import contextlib
import io
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest

from headwater import Admin, Consumer, Producer
from headwater.cli.configs import configs
from headwater.cli.consume import consume
from headwater.cli.elect import elect
from headwater.cli.groups import groups
from headwater.cli.main import run_command
from headwater.cli.reassign.command import reassign
from headwater.cli.topics import topics
from headwater.client.errors import UnknownTopicOrPartitionError
from headwater.ids import id_text
from headwater_broker.replica.replication_quota import UNLIMITED
from whole_cluster import ServedCluster

COMMANDS: dict[str, click.Command] = {
    c.name or "": c for c in (topics, configs, groups, reassign, elect, consume)
}
RECORDS = 200


class Ran(NamedTuple):
    stdout: str
    stderr: str


def run(
    cluster: ServedCluster,
    name: str,
    *arguments: str,
    code: int | None = 0,
    settings: object = None,
) -> Ran:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        given = [*arguments, "--bootstrap-server", cluster.bootstrap]
        found = run_command(COMMANDS[name], given, settings=settings)
    shown = f"{name} {arguments}: {found}\n{out.getvalue()}\n{err.getvalue()}"
    assert code is None or found == code, shown
    return Ran(out.getvalue(), err.getvalue())


def answer(
    cluster: ServedCluster,
    name: str,
    *arguments: str,
    code: int | None = 0,
    settings: object = None,
) -> Any:
    shown = run(cluster, name, *arguments, "--json", code=code, settings=settings).stdout
    return json.loads(shown)


def fill(cluster: ServedCluster, topic: str, count: int = RECORDS) -> None:
    with Producer(cluster.bootstrap, acks="all") as producer:
        for number in range(count):
            producer.send(topic, str(number).encode())


def read(cluster: ServedCluster, topic: str, count: int = RECORDS) -> list[bytes | None]:
    found: list[bytes | None] = []
    with Consumer(bootstrap_servers=cluster.bootstrap) as consumer:
        consumer.assign([(topic, 0)])
        consumer.seek_to_beginning((topic, 0))
        while len(found) < count and (rows := consumer.poll(5000)):
            found += [r.value for part in rows.values() for r in part]
    return found


WRITTEN = [str(n).encode() for n in range(RECORDS)]


@pytest.fixture
def c(tmp_path: Path) -> Iterator[ServedCluster]:
    with ServedCluster(tmp_path / "cluster", auto_leader_rebalance_enable="false") as cluster:
        yield cluster


def test_topics_with_manual_assignments_and_dry_runs(c: ServedCluster) -> None:
    assert answer(c, "topics", "create", "manual", "--partitions", "2", "--validate-only") == {
        "topic": "manual",
        "possible": True,
        "validate_only": True,
    }
    assert "manual" not in answer(c, "topics", "list")
    run(c, "topics", "create", "manual", "--replica-assignment", "2:0,0:1", "--config",
        "retention.ms=9000000")  # fmt: skip
    run(c, "topics", "alter", "manual", "--partitions", "3", "--replica-assignment", "1:9", code=1)
    run(c, "topics", "alter", "manual", "--partitions", "3", "--validate-only")
    grown = run(c, "topics", "alter", "manual", "--partitions", "3", "--replica-assignment", "1:2")
    assert grown.stdout == "manual has 3 partitions\n"
    assert grown.stderr.startswith("WARNING: If partitions are increased for a topic that has a")
    [topic] = answer(c, "topics", "describe", "manual")
    with Admin(c.bootstrap) as admin:
        topic_id = id_text(admin.describe_topics(["manual"])["manual"].topic_id)
    assert topic["topic_id"] == topic_id  # the folder of its table is manual-ID
    assert f"manual  {topic_id}" in run(c, "topics", "describe", "manual").stdout
    assert [p["replicas"] for p in topic["partitions"]] == [[2, 0], [0, 1], [1, 2]]
    assert [p["leader"] for p in topic["partitions"]] == [2, 0, 1]
    assert topic["configs"] == {"retention.ms": "9000000"}
    assert answer(c, "topics", "describe", "manual", "--under-replicated") == []
    assert answer(c, "topics", "describe", "manual", "--unavailable") == []
    assert [t["topic"] for t in answer(c, "topics", "describe", "manual", "--with-overrides")] == [
        "manual"
    ]
    run(c, "topics", "create", "manual", "--replica-assignment", "0", "--partitions", "1", code=2)
    assert answer(c, "topics", "delete", "manual", "never-made", "--if-exists")["deleted"] == [
        "manual"
    ]


def test_configs_tell_default_source_type_and_meaning(c: ServedCluster) -> None:
    run(c, "topics", "create", "conf", "--config", "segment.bytes=1048576")
    row = answer(c, "configs", "describe", "topic", "conf")["segment.bytes"]
    assert row["value"] == "1048576" and row["source"] == "DYNAMIC_TOPIC_CONFIG"
    assert (row["default"], row["type"]) == (str(1 << 30), "int")
    assert row["documentation"]
    run(c, "configs", "alter", "brokers", "--set", "log.retention.ms=86400000")
    run(c, "configs", "alter", "broker", "1", "--set", "log.retention.ms=43200000")

    def retention(broker: str) -> tuple[str, str]:
        row = answer(c, "configs", "describe", "broker", broker, "--all")["log.retention.ms"]
        return row["value"], row["source"]

    assert retention("0") == ("86400000", "DYNAMIC_DEFAULT_BROKER_CONFIG")
    assert retention("1") == ("43200000", "DYNAMIC_BROKER_CONFIG")
    assert list(answer(c, "configs", "describe", "brokers")) == ["log.retention.ms"]
    refused = run(c, "configs", "alter", "broker", "1", "--set", "log.dirs=/x", code=1).stderr
    assert "restart the broker" in refused
    run(c, "configs", "alter", "brokers", "--unset", "log.retention.ms")
    none = run(c, "configs", "alter", "brokers", "--set", "min.insync.replicas=0", code=1)
    assert "all brokers: config min.insync.replicas" in none.stderr
    run(c, "configs", "alter", "broker", "1", "--unset", "log.retention.ms")
    assert retention("1") == ("604800000", "DEFAULT_CONFIG")


def test_client_quotas_are_set_shown_and_taken_back(c: ServedCluster) -> None:
    rate = "producer_byte_rate"
    run(c, "configs", "alter", "client", "app", "--set", f"{rate}=1024", "--validate-only")
    assert answer(c, "configs", "describe", "quotas") == []
    run(c, "configs", "alter", "client", "app", "--set", f"{rate}=1024")
    run(c, "configs", "alter", "clients", "--of-user", "u", "--set", "request_percentage=12.5")
    run(c, "configs", "alter", "ip", "10.0.0.1", "--set", "connection_creation_rate=5")
    app = {"entity": {"client-id": "app"}, "quotas": {rate: 1024.0}}
    assert answer(c, "configs", "describe", "client", "app") == [app]
    every = answer(c, "configs", "describe", "quotas")
    assert len(every) == 3 and app in every
    pair = {"user": "u", "client-id": None}
    assert {"entity": pair, "quotas": {"request_percentage": 12.5}} in every
    shown = run(c, "configs", "describe", "quotas").stdout
    assert "client-id app" in shown and "client-id <default>" in shown and "1024" in shown
    for arguments, words in (
        (("client", "app", "--set", f"{rate}=fast"), "not a number"),
        (("client", "--set", f"{rate}=1"), "which client?"),
        (("clients", "app", "--set", f"{rate}=1"), "write `client app`"),
        (("user", "u", "--of-user", "v", "--set", f"{rate}=1"), "--of-user"),
        (("quotas", "--set", f"{rate}=1"), "shows all"),
    ):
        assert words in run(c, "configs", "alter", *arguments, code=2).stderr
    refused = run(c, "configs", "alter", "client", "app", "--set", f"{rate}=0", code=1).stderr
    assert "clients/app" in refused and "greater than 0" in refused
    run(c, "configs", "alter", "client", "app", "--unset", rate)
    run(c, "configs", "alter", "clients", "--of-user", "u", "--unset", "request_percentage")
    run(c, "configs", "alter", "ip", "10.0.0.1", "--unset", "connection_creation_rate")
    assert answer(c, "configs", "describe", "quotas") == []


def test_deleting_tells_what_is_gone_and_what_is_not(c: ServedCluster) -> None:
    for name in ("a", "b", "c", "d"):
        run(c, "topics", "create", name)
    half = run(c, "topics", "delete", "a", "never-made", code=1)
    assert half.stdout == "deleted a\n"
    assert "never-made: not deleted: UNKNOWN_TOPIC_OR_PARTITION" in half.stderr
    assert "never-made: it does not exist" in half.stderr
    assert "--if-exists" in half.stderr
    found = answer(c, "topics", "delete", "b", "never-made", "b", code=1)
    assert found["deleted"] == ["b"], "named twice, deleted once"
    assert [(row["topic"], row["error"]) for row in found["failed"]] == [
        ("never-made", "UNKNOWN_TOPIC_OR_PARTITION")
    ]
    run(c, "topics", "delete", "c", "never-made", "--if-exists")
    assert "nothing to delete" in run(c, "topics", "delete", "c", "--if-exists").stdout
    with Admin(c.bootstrap) as admin:
        with pytest.raises(UnknownTopicOrPartitionError, match="never-made"):
            admin.delete_topics(["d", "never-made"])
        assert admin.list_topics() == []


def test_configs_are_set_from_a_file(c: ServedCluster, tmp_path: Path) -> None:
    run(c, "topics", "create", "conf")
    file = tmp_path / "topic.properties"
    file.write_text("# of the topic\nretention.ms=9000\ncleanup.policy=compact,delete\n")
    run(c, "configs", "alter", "topic", "conf", "--add-config-file", str(file), "--set",
        "segment.bytes=1048576")  # fmt: skip
    values = {
        k: row["value"] for k, row in answer(c, "configs", "describe", "topic", "conf").items()
    }
    assert values == {
        "retention.ms": "9000",
        "cleanup.policy": "compact,delete",
        "segment.bytes": "1048576",
    }
    twice = run(c, "configs", "alter", "topic", "conf", "--set-file", str(file), "--unset",
                "retention.ms", code=2)  # fmt: skip
    assert f"retention.ms: given to both {file} and --unset" in twice.stderr


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [("99", 1, "no broker 99 runs; running are [0, 1, 2]"), ("²", 2, "'²' is no broker id")],
)
def test_configs_of_no_broker_are_refused_at_once(
    c: ServedCluster, name: str, code: int, words: str
) -> None:
    began = time.monotonic()
    assert words in run(c, "configs", "describe", "broker", name, code=code).stderr
    assert time.monotonic() - began < 10, "a call may take 60 s"


def test_a_broker_that_is_down_finds_its_configs_when_it_comes_back(c: ServedCluster) -> None:
    c.stop(2)
    c.until(lambda: 2 not in c.cluster.brokers[0].view.brokers, "its death is known")
    run(c, "configs", "alter", "broker", "2", "--set", "min.insync.replicas=2")
    c.start(2)
    found = answer(c, "configs", "describe", "broker", "2")["min.insync.replicas"]
    assert (found["value"], found["source"]) == ("2", "DYNAMIC_BROKER_CONFIG")
    assert "min.insync.replicas" not in answer(c, "configs", "describe", "broker", "0")


def test_groups_are_listed_described_moved_and_forgotten(c: ServedCluster) -> None:
    run(c, "topics", "create", "read", "--partitions", "1")
    fill(c, "read", 100)
    with Consumer("read", bootstrap_servers=c.bootstrap, group_id="readers",
                  auto_offset_reset="earliest") as consumer:  # fmt: skip
        seen = 0
        while seen < 40:
            seen += sum(len(rows) for rows in consumer.poll(1000, 40 - seen).values())
        consumer.commit()
        [group] = answer(c, "groups", "describe", "readers")
        [row] = group["partitions"]
        assert (group["state"], row["committed"], row["end"], row["lag"]) == ("Stable", 40, 100, 60)
        assert row["member"] and row["host"]
        busy = run(c, "groups", "reset-offsets", "readers", "--topic", "read", "--to-earliest",
                   "--execute", code=1)  # fmt: skip
        assert "stop its consumers" in busy.stderr
        kept = run(c, "groups", "delete", "readers", code=1).stderr
        assert kept.rstrip().endswith("NON_EMPTY_GROUP: group readers: stop its consumers first")
        kept = run(c, "groups", "delete-offsets", "readers", "--topic", "read", code=1)
        assert "GROUP_SUBSCRIBED_TO_TOPIC" in kept.stderr and not kept.stdout
        assert kept.stderr.rstrip().endswith(": stop its consumers first")
    assert "readers" in [g["group_id"] for g in answer(c, "groups", "list", "--state", "empty")]

    def reset(*way: str) -> int:
        found = answer(c, "groups", "reset-offsets", "readers", "--all-topics", *way)
        return int(found["offsets"][0]["offset"])

    assert reset("--to-earliest") == 0
    assert reset("--shift-by", "-15") == 25
    assert reset("--to-offset", "999") == 100
    assert reset("--to-current") == 40
    assert reset("--to-datetime", "2020-01-01T00:00:00") == 0
    assert reset("--to-latest", "--execute") == 100
    assert reset("--to-current") == 100
    run(c, "groups", "delete-offsets", "readers", "--topic", "read:0")
    assert answer(c, "groups", "describe", "readers")[0]["partitions"] == []
    half = answer(c, "groups", "delete", "never-was", "readers", code=1)
    assert half["deleted"] == ["readers"]
    assert [(row["group"], row["error"]) for row in half["failed"]] == [
        ("never-was", "GROUP_ID_NOT_FOUND")
    ]
    run(c, "groups", "describe", "readers", code=1)
    assert "never-was: not deleted" in run(c, "groups", "delete", "never-was", code=1).stderr


def test_a_plan_moves_a_replica_between_the_folders_of_its_broker(
    c: ServedCluster, tmp_path: Path
) -> None:
    run(c, "topics", "create", "between", "--replica-assignment", "1")
    fill(c, "between")
    broker, plan = c.cluster.brokers[1], tmp_path / "plan.json"

    def folder() -> str:
        return broker.logs.logs["between", 0].path.rpartition("/")[0]

    before = folder()
    there = next(path for path, _, _ in broker.logs.by_folder() if path != before)
    row = {"topic": "between", "partition": 0, "replicas": [1], "log_dirs": [there]}
    plan.write_text(json.dumps({"partitions": [row]}))
    early = answer(c, "reassign", "verify", str(plan), code=1)
    assert (early["done"], len(early["log_dirs"])) == (False, 1)
    run(c, "reassign", "execute", str(plan), "--wait")
    assert answer(c, "reassign", "verify", str(plan)) == {
        "partitions": [{"topic": "between", "partition": 0, "status": "complete"}],
        "log_dirs": [],
        "done": True,
    }
    assert folder() == there
    assert read(c, "between") == WRITTEN
    loops = [
        b.controller.controller_loop for b in c.cluster.brokers.values() if b.controller.is_active
    ]
    known = loops[0].machine.state.partition("between", 0)
    assert known.directories[1] == broker.logs.logs["between", 0].directory_id
    plan.write_text(json.dumps({"partitions": [{**row, "log_dirs": ["/not/there"]}]}))
    half = run(c, "reassign", "execute", str(plan), "--wait", code=1)
    assert "LOG_DIR_NOT_FOUND" in half.stderr
    assert "Started to reassign: between-0\n" in half.stdout  # what has started is shown as well


def rate(broker: Any, side: str) -> int:
    return int(getattr(broker.replicas.quotas, side).bytes_per_s)


def test_partitions_move_by_a_plan_and_keep_every_record(c: ServedCluster, tmp_path: Path) -> None:
    run(c, "topics", "create", "moved", "--replica-assignment", "0:1")
    fill(c, "moved")
    made = answer(c, "reassign", "generate", "--topic", "moved", "--brokers", "1,2")
    assert made["current"]["partitions"] == [{"topic": "moved", "partition": 0, "replicas": [0, 1]}]
    proposed = made["proposed"]
    assert sorted(proposed["partitions"][0]["replicas"]) == [1, 2]
    plan, back = tmp_path / "plan.json", tmp_path / "back.json"
    plan.write_text(json.dumps(proposed))
    assert answer(c, "reassign", "verify", str(plan), code=1)["done"] is False
    planned = proposed["partitions"][0]["replicas"]
    told = f"moved-0: its replicas are [0, 1], planned were {planned}\n"
    assert run(c, "reassign", "verify", str(plan), code=1).stderr == told
    done = answer(c, "reassign", "execute", str(plan), "--throttle", "123456789")
    assert done["results"][0]["error"] is None
    throttled = {"leader": "0:0,0:1", "follower": "0:2"}
    for side, replicas in throttled.items():
        name = f"{side}.replication.throttled.replicas"
        with Admin(c.bootstrap) as admin:
            assert admin.describe_configs("topic", "moved")[name].value == replicas
        c.until(lambda s=side: [rate(b, s) for b in c.cluster.brokers.values()] == [123456789] * 3,
                "every broker slows its moves")  # fmt: skip
    while not answer(c, "reassign", "verify", str(plan), code=None)["done"]:
        assert c.state("moved").leader_id >= 0
    for side in throttled:
        name = f"{side}.replication.throttled.replicas"
        with Admin(c.bootstrap) as admin:
            assert admin.describe_configs("topic", "moved")[name].value == ""
        c.until(lambda s=side: {rate(b, s) for b in c.cluster.brokers.values()} == {UNLIMITED},
                "verify has removed the throttles")  # fmt: skip
    partition = c.state("moved")
    assert list(partition.replicas) == proposed["partitions"][0]["replicas"]
    assert sorted(partition.isr) == [1, 2]
    first = c.cluster.brokers[0]
    c.until(lambda: ("moved", 0) not in first.logs.logs, "the old replica is gone")
    assert read(c, "moved") == WRITTEN
    back.write_text(json.dumps(done["current"]))
    run(c, "reassign", "execute", str(back), "--wait")
    assert c.state("moved").replicas == (0, 1)
    assert read(c, "moved") == WRITTEN
    assert answer(c, "reassign", "list") == []
    assert (
        "no reassignment of the plan is in progress"
        in run(c, "reassign", "cancel", str(back)).stdout
    )


def test_a_move_waits_for_its_broker_outlives_controllers_and_is_cancelled(
    c: ServedCluster, tmp_path: Path
) -> None:
    run(c, "topics", "create", "slow", "--replica-assignment", "0:1")
    fill(c, "slow")
    plan = tmp_path / "plan.json"
    rows = [{"topic": "slow", "partition": 0, "replicas": [2, 0]}]
    plan.write_text(json.dumps({"version": 1, "partitions": rows}))
    c.cluster.cut_off.add(2)  # it lives, and does not follow
    run(c, "reassign", "execute", str(plan))
    [move] = answer(c, "reassign", "list")
    assert (move["adding_replicas"], move["removing_replicas"]) == ([2], [1])
    assert answer(c, "reassign", "verify", str(plan))["partitions"][0]["status"] == "in progress"
    again = run(c, "reassign", "execute", str(plan), code=1).stderr
    assert "reassignments are in progress" in again
    controller = c.cluster.controller()
    c.stop(controller)
    c.until(lambda: any(b.controller.is_active for b in c.cluster.brokers.values()), "another")
    assert [m["adding_replicas"] for m in answer(c, "reassign", "list")] == [[2]]
    c.start(controller)
    c.until(lambda: set(c.state("slow").isr) == {0, 1}, "both in sync")
    run(c, "reassign", "cancel", str(plan))
    assert answer(c, "reassign", "list") == []
    c.until(lambda: c.state("slow").replicas == (0, 1), "it is as it was")
    c.cluster.cut_off.clear()
    run(c, "reassign", "execute", str(plan), "--wait")
    assert answer(c, "reassign", "verify", str(plan))["done"] is True
    assert read(c, "slow") == WRITTEN


def test_leaders_come_back_by_election_and_unclean_ones_are_forced(
    c: ServedCluster, tmp_path: Path
) -> None:
    run(c, "topics", "create", "led", "--replica-assignment", "0:1,1:0")
    run(c, "topics", "create", "lost", "--replica-assignment", "2:1")
    fill(c, "lost", 10)
    c.stop(0)
    c.until(lambda: c.state("led").leader_id == 1, "the other leads")
    failed = run(c, "elect", "preferred", "--partition", "led:0", code=1).stderr
    assert "broker 0 is not running" in failed
    c.start(0)
    c.until(lambda: len(c.state("led").isr) == len(c.state("led", 1).isr) == 2, "in sync again")
    file = tmp_path / "led.json"
    file.write_text(
        '{"partitions":[{"topic":"led","partition":"0"},{"topic":"led","partition":1}]}'
    )
    run(c, "elect", "preferred", "--all", "--path-to-json-file", str(file), code=2)
    found = answer(c, "elect", "preferred", "--path-to-json-file", str(file))
    assert [(r["partition"], r["elected"], r["error"]) for r in found] == [
        (0, True, None),
        (1, False, "ELECTION_NOT_NEEDED"),
    ]
    assert c.state("led").leader_id == 0
    assert "no election was needed" in run(c, "elect", "preferred", "--all").stdout
    c.stop(1)
    c.until(lambda: c.state("lost").isr == (2,), "only broker 2 is in sync")
    c.stop(2)
    c.start(1)
    c.until(lambda: c.state("lost").leader_id == -1, "it has no leader")
    run(c, "elect", "preferred", "--partition", "lost", code=1)
    run(c, "elect", "unclean", "--partition", "lost")
    assert c.state("lost").leader_id == 1
