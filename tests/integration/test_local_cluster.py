"""`headwater up`, `status`, `topics`, `configs`, `down` as a user runs them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headwater.client.blocking.broker_status import BrokerStatusClient
from headwater.local import cluster_file, processes
from integration.cluster import LocalCluster
from integration.conftest import next_base_port

pytestmark = pytest.mark.integration

HEADWATER = str(Path(sys.executable).parent / "headwater")
UP_S = 5.0
"""Three brokers are ready in less, on two cores that have nothing else to do."""
UP_SLACK = float(os.environ.get("HEADWATER_TEST_TIME_FACTOR", "3"))


class Cli:
    """The `headwater` command on one folder."""

    def __init__(self, directory: Path, port: int) -> None:
        self.directory = directory
        self.port = port

    def run(self, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [HEADWATER, *arguments, "--dir", str(self.directory)],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        shown = f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert done.returncode == code, shown
        assert "Traceback" not in done.stdout + done.stderr, shown
        return done

    def up(self, brokers: int = 3, code: int = 0) -> subprocess.CompletedProcess[str]:
        return self.run("up", "--brokers", str(brokers), "--port", str(self.port), code=code)

    def read(self, topic: str) -> list[str]:
        return self.run("consume", topic, "--from-beginning", "--exit-at-end").stdout.split()

    def status(self, code: int = 0) -> dict[str, object]:
        found: dict[str, object] = json.loads(self.run("status", "--json", code=code).stdout)
        return found


@pytest.fixture
def cli(tmp_path: Path, free_base_port: int) -> Iterator[Cli]:
    made = Cli(tmp_path / "d", free_base_port)
    yield made
    made.run("down")
    assert processes.of_cluster(made.directory) == []


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    """One broker that is up, for the tests that leave it so."""
    folder = tmp_path_factory.mktemp("up")
    made = Cli(folder / "d", next_base_port(folder))
    made.up(1)
    yield made
    made.run("down")
    assert processes.of_cluster(made.directory) == []


def test_up_status_down(cli: Cli) -> None:
    started = time.monotonic()
    up = cli.up(3)
    took = time.monotonic() - started
    assert took < UP_S * UP_SLACK
    bootstrap = ",".join(f"127.0.0.1:{cli.port + i}" for i in range(3))
    assert bootstrap in up.stdout
    # Ready when it says so: every broker answers at once.
    for i in range(3):
        with BrokerStatusClient(f"127.0.0.1:{cli.port + i}") as client:
            assert client.status().ready
    cli.run("topics", "create", "flights", "--partitions", "2", "--replication-factor", "3")
    described = json.loads(cli.run("topics", "describe", "flights", "--json").stdout)
    assert [len(p["isr"]) for p in described[0]["partitions"]] == [3, 3]
    assert cli.run("topics", "list").stdout.split() == ["flights"]
    status = cli.status()
    assert status["healthy"] is True
    assert "flights-0" in cli.run("status").stdout
    down = cli.run("down")
    assert "none is left" in down.stdout
    assert processes.of_cluster(cli.directory) == []
    assert cli.status(code=1)["running"] is False


def test_data_is_found_again_and_sizes_are_kept(cli: Cli) -> None:
    cli.up(2)
    cli.run("topics", "create", "kept", "--replication-factor", "2")
    before = cluster_file.load(cli.directory)
    cli.run("down")
    cli.run("up")
    after = cluster_file.load(cli.directory)
    assert before is not None and after is not None
    assert (after.cluster_id, after.brokers, after.base_port) == (before.cluster_id, 2, cli.port)
    assert cli.run("topics", "list").stdout.split() == ["kept"]


def test_topics_and_configs_change(up: Cli) -> None:
    up.run("topics", "create", "t", "--config", "retention.ms=1000")
    up.run("topics", "create", "t", code=1)
    up.run("topics", "create", "t", "--if-not-exists")
    up.run("topics", "alter", "t", "--partitions", "3")
    described = json.loads(up.run("topics", "describe", "t", "--json").stdout)
    assert len(described[0]["partitions"]) == 3
    up.run("configs", "alter", "topic", "t", "--set", "segment.ms=5000", "--unset", "retention.ms")
    shown = json.loads(up.run("configs", "describe", "topic", "t", "--json").stdout)
    assert shown["segment.ms"]["value"] == "5000"
    assert "retention.ms" not in shown
    up.run("topics", "delete", "t")
    assert up.run("topics", "list").stdout.split() == []
    assert "absent" in up.run("topics", "describe", "absent", code=1).stderr
    assert "KEY=VALUE" in up.run("topics", "create", "u", "--config", "x", code=2).stderr


def test_status_and_produce_report_an_outage(up: Cli) -> None:
    """`status` said `no topics yet`, `produce` nothing for 45 s."""
    up.run("topics", "create", "quiet")
    cluster = cluster_file.load(up.directory)
    assert cluster is not None
    [broker] = [p for p in cluster.processes if p.name == "broker-0"]
    command = [HEADWATER, "produce", "quiet", "--dir", str(up.directory)]
    producer = subprocess.Popen(
        command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    assert producer.stdin is not None and producer.stderr is not None
    producer.stdin.write(b"one\n")
    producer.stdin.flush()
    LocalCluster.wait_until(lambda: len(up.read("quiet")) == 1, "the producer is connected")
    broker.send(signal.SIGSTOP)
    try:
        producer.stdin.write(b"two\n")
        producer.stdin.close()
        line = producer.stderr.readline().decode()
        assert "waiting for 3 s: no acknowledgement for 1 of 2 records" in line
        shown = up.run("status", code=1).stdout
        assert "does not answer" in shown and "its topics are not known" in shown
    finally:
        broker.send(signal.SIGCONT)
    assert producer.wait(60) == 0
    assert "2 records to quiet" in producer.stderr.read().decode()
    producer.stderr.close()
    assert up.read("quiet") == ["one", "two"]
    up.run("topics", "delete", "quiet")


def test_a_second_up_on_the_same_folder_is_refused(up: Cli) -> None:
    assert "a cluster runs in" in up.run("up", code=2).stderr
    assert up.status()["healthy"] is True


def test_a_port_in_use_is_one_line_with_the_remedy(cli: Cli) -> None:
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", cli.port))
        holder.listen()
        refused = cli.up(1, code=2).stderr
    assert f"port {cli.port} (broker-0) is in use" in refused
    assert "--port" in refused
    assert refused.count("\n") == 1


def test_a_refused_start_leaves_nothing(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "disk").write_text("a file, not a folder")
    cli.run("up", "--set", f"log.dirs={tmp_path / 'disk'}", "--port", str(cli.port), code=1)
    assert sorted(path.name for path in cli.directory.iterdir()) == ["logs"]
    shutil.rmtree(cli.directory)
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", cli.port))
        holder.listen()
        cli.up(1, code=2)
    assert not cli.directory.exists()


@pytest.mark.parametrize("options", [(), pytest.param(("--foreground",), marks=pytest.mark.long)])
def test_ctrl_c_during_the_start_leaves_nothing(cli: Cli, options: tuple[str, ...]) -> None:
    command = [HEADWATER, "up", *options, "--port", str(cli.port), "--dir", str(cli.directory)]
    process = subprocess.Popen(command)
    log = cli.directory / "logs" / "zookeeper.log"
    LocalCluster.wait_until(log.exists, "the start has begun")
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert not cli.directory.exists()


@pytest.mark.long
def test_brokers_are_added_to_a_running_cluster(cli: Cli) -> None:
    cli.up(1)
    cli.run("topics", "create", "kept")
    shown = cli.run("cluster", "add", "2").stdout
    assert "broker 2 is ready" in shown and "headwater cluster rebalance" in shown
    cli.run("topics", "create", "spread", "--replication-factor", "3")
    assert "headwater cluster add" in cli.run("up", "--brokers", "4", code=2).stderr
    before = cluster_file.load(cli.directory)
    restarted = json.loads(cli.run("cluster", "restart-broker", "1", "--json").stdout)
    assert restarted["brokers"] == [{"broker_id": 1, "address": f"127.0.0.1:{cli.port + 1}"}]
    after = cluster_file.load(cli.directory)
    assert before is not None and after is not None
    pids = [{p.name: p.pid for p in found.processes} for found in (before, after)]
    moved = {name for name, pid in pids[0].items() if pids[1][name] != pid}
    assert moved == {"broker-1"}
    log = (cli.directory / "logs" / "supervisor.log").read_text()
    assert "broker-1 stopped" in log and "{" not in log
    cli.run("down")
    assert "is down" in cli.run("cluster", "add", code=2).stderr
    cli.run("up")
    status = cli.status()
    assert len(status["brokers"]) == 3  # type: ignore[arg-type]
    assert cli.run("topics", "list").stdout.split() == ["kept", "spread"]


@pytest.mark.long
def test_brokers_have_a_data_folder_on_each_disk(cli: Cli, tmp_path: Path) -> None:
    disks = [tmp_path / "disk1", tmp_path / "disk2"]
    asked = ("--set", "log.dirs=" + ",".join(map(str, disks)), "--port", str(cli.port))
    cli.run("up", "--brokers", "1", *asked)
    cli.run("topics", "create", "t", "--partitions", "4")
    for disk in disks:
        found = [path.name for path in (disk / "broker-0").iterdir() if path.name.startswith("t-")]
        assert len(found) == 2, found
    cli.run("down")
    refused = cli.run("up", "--set", f"log.dirs={disks[0]}", code=2).stderr
    assert f"{disks[1]}/broker-0 holds replicas" in refused
    cli.run("up")
    [described] = json.loads(cli.run("topics", "describe", "t", "--json").stdout)
    assert [p["leader"] for p in described["partitions"]] == [0] * 4


@pytest.mark.long
def test_a_lost_zookeeper_is_not_replaced_by_an_empty_one(cli: Cli, tmp_path: Path) -> None:
    """A healthy cluster without topics came up, and producers created them again."""
    cli.up(2)
    cli.run("topics", "create", "kept", "--replication-factor", "2")
    cli.run("produce", "kept", "a record")
    cli.run("down")
    lost = tmp_path / "lost"
    (cli.directory / "zookeeper").rename(lost)
    refused = cli.run("up", code=1).stderr
    assert f"{cli.directory}/broker-" in refused and "restore ZooKeeper's data" in refused
    assert refused.count("\n") == 1
    assert not (cli.directory / "zookeeper").exists(), "nothing is left behind"
    assert processes.of_cluster(cli.directory) == []
    lost.rename(cli.directory / "zookeeper")
    cli.run("up")
    read = cli.run("consume", "kept", "--from-beginning", "--exit-at-end")
    assert read.stdout == "a record\n"


def test_down_after_the_supervisor_was_killed_leaves_nothing(cli: Cli) -> None:
    cli.up(2)
    cluster = cluster_file.load(cli.directory)
    assert cluster is not None and cluster.manager is not None
    os.kill(cluster.manager.pid, signal.SIGKILL)
    cli.run("down")
    assert processes.of_cluster(cli.directory) == []


def test_up_after_everything_was_killed_finds_the_data(cli: Cli) -> None:
    cli.up(2)
    cli.run("topics", "create", "kept", "--replication-factor", "2")
    for process in processes.of_cluster(cli.directory):
        process.send(signal.SIGKILL)
    cli.run("up")
    assert cli.run("topics", "list").stdout.split() == ["kept"]


@pytest.mark.long
def test_ctrl_c_during_foreground_leaves_nothing(cli: Cli) -> None:
    command = [HEADWATER, "up", "--foreground", "--brokers", "1", "--port", str(cli.port)]
    process = subprocess.Popen([*command, "--dir", str(cli.directory)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline().startswith(b"bootstrap servers")
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    process.stdout.close()
    assert processes.of_cluster(cli.directory) == []


@pytest.mark.long
def test_a_killed_broker_comes_back_under_the_same_address(
    start_cluster: Callable[..., LocalCluster],
) -> None:
    cluster = start_cluster(brokers=2)
    first = cluster.pid(1)
    cluster.kill_broker(1)
    with (
        BrokerStatusClient(cluster.spec.slot(1).address) as client,
        pytest.raises(OSError),
    ):
        client.status()
    cluster.restart(1)
    assert cluster.pid(1) != first
    assert cluster.status(1)["broker_id"] == 1


@pytest.mark.long
def test_settings_are_kept_and_an_ensemble_of_others_is_used(cli: Cli, tmp_path: Path) -> None:
    cli.up(1)
    ensemble = f"127.0.0.1:{cli.port + 300}/second/one"
    second = Cli(tmp_path / "second", cli.port + 5)
    try:
        asked = ("--zookeeper", ensemble, "--set", "num.partitions=4")
        second.run("up", "--brokers", "1", "--port", str(second.port), *asked)
        names = {process.name for process in processes.of_cluster(second.directory)}
        assert "java" not in names, "a ZooKeeper of its own"
        second.run("topics", "create", "t")
        second.run("down")
        second.run("up")
        assert second.run("topics", "list").stdout.split() == ["t"]
        second.run("topics", "create", "u")
        for topic in ("t", "u"):
            [described] = json.loads(second.run("topics", "describe", topic, "--json").stdout)
            assert len(described["partitions"]) == 4
        assert cli.run("topics", "list").stdout.split() == []
        assert "every broker has its own" in second.run("up", "--set", "broker.id=7", code=2).stderr
    finally:
        second.run("down")
    cli.run("down")
    assert "embedded ZooKeeper" in cli.run("up", "--zookeeper", ensemble, code=2).stderr
