"""`headwater cluster` on a cluster of `headwater up`, under load: brokers are added, filled,
drained, removed and restarted one after the other, and no client sees an error."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater import Admin
from headwater.client.values import NewTopic
from headwater.local import cluster_file, processes
from integration.sdk_load import SdkLoad

pytestmark = pytest.mark.integration

HEADWATER = str(Path(sys.executable).with_name("headwater"))
TOPIC = "kept"
PARTITIONS = 6
GAP_MAX_S = 1.0

Run = Callable[..., Any]


@pytest.fixture
def run(tmp_path: Path, free_base_port: int) -> Iterator[Run]:
    def command(*arguments: str, code: int = 0) -> Any:
        done = subprocess.run(
            [HEADWATER, *arguments, "--dir", str(tmp_path / "d"), "--json"],
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == code, f"{arguments}: {done.stdout}\n{done.stderr}"
        return json.loads(done.stdout) if code == 0 else done.stderr

    command("up", "--brokers", "3", "--port", str(free_base_port))
    yield command
    command("down")
    assert processes.of_cluster(tmp_path / "d") == []


def holders(servers: str) -> set[int]:
    """The brokers that have a replica of any topic."""
    with Admin(servers) as admin:
        topics = admin.describe_topics()
    return {i for topic in topics.values() for row in topic.partitions for i in row.replicas}


def installed_elsewhere(folder: Path) -> str:
    """A Python with Headwater that has another path: as after the installation of a release."""
    (folder / "bin").mkdir(parents=True)
    shutil.copy(Path(sys.prefix) / "pyvenv.cfg", folder)
    (folder / "lib").symlink_to(Path(sys.prefix) / "lib")
    python = folder / "bin" / "python"
    python.symlink_to(sys.executable)
    return str(python)


def interpreters(run: Run) -> set[str]:
    """The programs that brokers run in."""
    return {
        Path(f"/proc/{row['pid']}/cmdline").read_text().partition("\0")[0]
        for row in run("cluster", "list")["brokers"]
    }


@pytest.mark.long
def test_brokers_come_and_go_under_load(run: Run, tmp_path: Path) -> None:
    servers = cluster_file.load(tmp_path / "d").bootstrap_servers
    with Admin(servers) as admin:
        configs = {"min.insync.replicas": "2"}
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3, configs)])
    with SdkLoad(servers, TOPIC, PARTITIONS) as load:
        added = run("cluster", "add", "2")["brokers"]
        assert [row["broker_id"] for row in added] == [3, 4]
        assert run("cluster", "rebalance")["partitions_moved"] > 0
        assert holders(servers) == {0, 1, 2, 3, 4}
        # The middle one goes, and its id is used again.
        removed = run("cluster", "remove", "1")
        assert removed["folders"] == [str(tmp_path / "d" / "broker-1")]
        assert holders(servers) == {0, 2, 3, 4}
        assert run("cluster", "add")["brokers"][0]["broker_id"] == 1
        assert run("cluster", "drain", "3", "4")["partitions_moved"] > 0
        assert holders(servers) == {0, 1, 2}
        assert run("cluster", "drain", "3", "4")["partitions_moved"] == 0
        rows = run("cluster", "list")["brokers"]
        assert [row["broker_id"] for row in rows if row["ready"]] == [0, 1, 2, 3, 4]
        run("cluster", "remove", "3", "4")
        assert holders(servers) == {0, 1, 2}
        assert sorted(run("cluster", "rolling-restart")["restarted"]) == [0, 1, 2]
        upgraded = run("cluster", "rolling-restart", "--python", sys.executable)["restarted"]
        assert upgraded == []  # it runs them already
        newer = installed_elsewhere(tmp_path / "newer")
        assert interpreters(run) == {sys.executable}
        upgraded = run("cluster", "rolling-restart", "--python", newer)["restarted"]
        assert sorted(upgraded) == [0, 1, 2]
        assert interpreters(run) == {newer}
        assert run("cluster", "rolling-restart", "--python", newer)["restarted"] == []
    load.check(GAP_MAX_S)
    assert "factor of" in run("cluster", "drain", "1", code=2)
    assert "ZooKeeper session: connected" in run("cluster", "logs", "1")["text"]
    rows = run("cluster", "list")["brokers"]
    assert [(row["broker_id"], row["ready"]) for row in rows] == [
        (0, True),
        (1, True),
        (2, True),
    ]


def test_the_same_commands_change_brokers_of_a_spark_application(
    tmp_path: Path, free_base_port: int
) -> None:
    folder = tmp_path / "d"

    def command(*arguments: str) -> Any:
        done = subprocess.run(
            [HEADWATER, *arguments, "--dir", str(folder), "--json"],
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, f"{arguments}: {done.stdout}\n{done.stderr}"
        return json.loads(done.stdout)

    command("up", "--spark", "local[5]", "--brokers", "2", "--port", str(free_base_port))
    try:
        zookeeper = f"127.0.0.1:{free_base_port + 300}"
        servers = cluster_file.load(folder).bootstrap_servers
        with Admin(servers) as admin:
            admin.create_topics([NewTopic(TOPIC, PARTITIONS, 2)])
        assert command("cluster", "add")["brokers"][0]["broker_id"] == 2
        assert command("cluster", "rebalance", "--zookeeper", zookeeper)["partitions_moved"] > 0
        before = {row["broker_id"]: row["pid"] for row in command("cluster", "list")["brokers"]}
        command("cluster", "restart-broker", "1", "--zookeeper", zookeeper)
        after = {row["broker_id"]: row["pid"] for row in command("cluster", "list")["brokers"]}
        assert [before[i] == after[i] for i in range(3)] == [True, False, True]
        command("cluster", "remove", "0")
        assert holders(servers) == {1, 2}
        assert cluster_file.load(folder).spec(folder).broker_ids == (1, 2)
        assert "ZooKeeper session" in command("cluster", "logs", "2")["text"]
    finally:
        command("down")
    assert processes.of_cluster(folder) == []
