"""`headwater cluster`: arguments, output and exit codes, on a cluster of fakes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from headwater.cli.cluster import Connections, cluster
from headwater.client.values import TopicPartition
from headwater.errors import HeadwaterError, UsageError
from headwater.local.change_requests import STATUS
from headwater.local.zk_requests import ZkManagerClient
from unit.operations.fake_cluster import FakeCluster


@pytest.fixture
def fake() -> FakeCluster:
    return FakeCluster(4, {TopicPartition("t", n): (n, (n + 1) % 4, (n + 2) % 4) for n in range(4)})


def run(fake: FakeCluster, *arguments: str) -> str:
    connections = Connections(lambda *_where: fake, lambda _servers: fake, fake.pacing())
    done = CliRunner().invoke(
        cluster, arguments, obj=connections, standalone_mode=False, catch_exceptions=False
    )
    assert done.return_value == 0
    return done.stdout


def answer(fake: FakeCluster, *arguments: str) -> Any:
    return json.loads(run(fake, *arguments, "--json"))


def test_brokers_are_removed_and_the_folders_named(fake: FakeCluster) -> None:
    assert answer(fake, "remove", "3") == {"removed": [3], "folders": ["broker-3"]}
    with pytest.raises(UsageError, match="factor of t"):
        run(fake, "drain", "0")
    assert list(fake.members) == [0, 1, 2]


def test_added_brokers_are_filled_on_demand(fake: FakeCluster) -> None:
    assert "broker 4 is ready at h:4" in run(fake, "add")
    assert answer(fake, "add", "2")["brokers"][1] == {"broker_id": 6, "address": "h:6"}
    assert answer(fake, "rebalance")["partitions_moved"] > 0
    assert answer(fake, "rebalance") == {"partitions_moved": 0}


def test_restarts(fake: FakeCluster) -> None:
    assert run(fake, "restart-broker", "2") == "broker 2 is ready at h:2\n"
    assert answer(fake, "rolling-restart") == {"restarted": [1, 2, 3, 0]}
    assert run(fake, "rolling-restart", "--python", "/new") == "restarted: 1, 2, 3, 0\n"
    assert run(fake, "rolling-restart", "--python", "/new") == "every broker runs it already\n"


def test_brokers_may_be_asked_at_another_listener(fake: FakeCluster) -> None:
    asked: list[str] = []

    def admin(servers: str) -> FakeCluster:
        asked.append(servers)
        return fake

    connections = Connections(lambda *_where: fake, admin, fake.pacing())
    for at in ((), ("--bootstrap-server", "other:1")):
        arguments = ["restart-broker", "2", *at]
        CliRunner().invoke(cluster, arguments, obj=connections, catch_exceptions=False)
        assert asked
        assert {servers == "other:1" for servers in asked} == {bool(at)}
        asked.clear()


def test_the_time_limit_is_the_brokers(fake: FakeCluster) -> None:
    fake.catch_up_polls = 10**6
    with pytest.raises(HeadwaterError, match="broker 2: 3 not in sync"):
        run(fake, "restart-broker", "2", "--timeout", "5")
    assert 5 <= fake.now < 7


def test_brokers_and_logs_are_shown(fake: FakeCluster) -> None:
    fake.down.add(1)
    lines = run(fake, "list").splitlines()
    assert [line.split()[3] for line in lines] == ["ready", "down", "ready", "ready"]
    assert run(fake, "logs", "1") == "the log of 1\n"
    assert answer(fake, "logs", "1", "--bytes", "7") == {"broker_id": 1, "text": "the log"}


def test_a_folder_without_a_cluster_names_both_ways(tmp_path: Path) -> None:
    arguments = ["list", "--dir", str(tmp_path)]
    with pytest.raises(UsageError, match="--zookeeper"):
        CliRunner().invoke(cluster, arguments, standalone_mode=False, catch_exceptions=False)


def test_a_zookeeper_that_does_not_answer_is_one_line() -> None:
    client = ZkManagerClient("127.0.0.1:1", connect_timeout_s=0.05)
    with pytest.raises(HeadwaterError, match=r"ZooKeeper at 127\.0\.0\.1:1: .*run this command"):
        list(client.ask(STATUS))


def test_the_file_for_zookeeper_goes_with_its_address() -> None:
    with pytest.raises(UsageError, match="--zookeeper-config goes with --zookeeper"):
        CliRunner().invoke(
            cluster,
            ["list", "--zookeeper-config", "secrets.properties"],
            standalone_mode=False,
            catch_exceptions=False,
        )
