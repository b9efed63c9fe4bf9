"""The supervisor with real processes and a real ZooKeeper; the brokers are stand-ins."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from headwater.errors import HeadwaterError, UsageError
from headwater.local import processes
from headwater.local.child import ChildFailedError
from headwater.local.cluster_spec import ClusterSpec
from headwater.local.manager import silent
from headwater.local.supervisor import Supervisor, kill_and_wait
from headwater.local.zk_session import DeadSession, close_session
from headwater.system import SystemClock
from integration.conftest import next_base_port

pytestmark = pytest.mark.integration

FAKE = (sys.executable, str(Path(__file__).with_name("registering_broker.py")))
CLUSTER_ID = "iZf0mPzZT5KqXK0E7YAbcg"


def make(directory: Path, port: int, brokers: int = 2, **properties: str) -> Supervisor:
    spec = ClusterSpec(directory, CLUSTER_ID, brokers, port)
    return Supervisor(spec, SystemClock(), broker_command=FAKE, properties=properties)


@pytest.fixture(scope="module")
def supervisor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervisor]:
    """One for the tests that leave all processes running."""
    folder = tmp_path_factory.mktemp("supervised")
    running = make(folder, next_base_port(folder))
    running.start(silent)
    yield running
    running.stop(silent)
    assert processes.of_cluster(folder) == []


@pytest.fixture
def zookeeper(supervisor: Supervisor) -> Iterator[KazooClient]:
    client = KazooClient(hosts=supervisor.spec.zookeeper)
    client.start()
    yield client
    client.stop()


def test_a_killed_broker_is_unregistered_at_once_and_comes_back(
    supervisor: Supervisor, zookeeper: KazooClient
) -> None:
    broker = supervisor.brokers[0]
    first, restarts = broker.pid, broker.restarts
    broker.hold()
    started = time.monotonic()
    broker.send(signal.SIGKILL)
    while zookeeper.exists("/brokers/ids/0"):
        time.sleep(0.002)
    assert time.monotonic() - started < 1.0  # its own session timeout is 30 s
    assert first is not None and broker.wait_down(first)
    assert zookeeper.get_children("/brokers/ids") == ["1"]
    broker.release()
    broker.wait_ready()
    assert broker.pid not in (None, first)
    assert broker.restarts == restarts + 1
    assert sorted(zookeeper.get_children("/brokers/ids")) == ["0", "1"]


def test_closing_an_expired_session_has_no_effect(
    supervisor: Supervisor, zookeeper: KazooClient
) -> None:
    ready = supervisor.brokers[0].readiness
    assert ready is not None
    dead = DeadSession(ready["session_id"], bytes.fromhex(ready["session_password"]))
    kill_and_wait(supervisor.brokers[0])
    supervisor.brokers[0].wait_ready()
    again = zookeeper.get("/brokers/ids/0")[1].czxid
    started = time.monotonic()
    assert close_session(supervisor.spec.zookeeper, dead)
    assert time.monotonic() - started < 2.0
    assert zookeeper.get("/brokers/ids/0")[1].czxid == again


def test_zookeeper_comes_back_with_its_data(supervisor: Supervisor) -> None:
    assert supervisor.zookeeper is not None
    pid = supervisor.zookeeper.pid
    kill_and_wait(supervisor.zookeeper)
    supervisor.zookeeper.wait_ready()
    assert supervisor.zookeeper.pid != pid
    client = KazooClient(hosts=supervisor.spec.zookeeper)
    client.start()
    assert sorted(client.get_children("/brokers/ids")) == ["0", "1"]
    client.stop()


def test_state_lists_every_process(supervisor: Supervisor) -> None:
    state = supervisor.state()
    assert [p.name for p in state.processes] == ["zookeeper", "broker-0", "broker-1"]
    assert all(p.alive() for p in state.processes)
    marked = {p.pid for p in processes.of_cluster(supervisor.spec.directory)}
    assert {p.pid for p in state.processes} <= marked


def test_brokers_are_added_and_restarted_while_the_cluster_runs(
    tmp_path: Path, free_base_port: int
) -> None:
    running = make(tmp_path, free_base_port, brokers=1)
    steps: list[str] = []
    running.start(silent)
    try:
        first = running.brokers[0].pid
        running.add_brokers(2, lambda text, done, total: steps.append(f"{text} {done}/{total}"))
        assert steps == ["broker-1 is ready 1/2", "broker-2 is ready 2/2"]
        assert running.state().bootstrap_servers == running.spec.bootstrap_servers
        assert running.spec.brokers == 3 and running.brokers[0].pid == first
        before = [running.brokers[i].pid for i in range(3)]
        running.restart_broker(1, silent)
        after = [running.brokers[i].pid for i in range(3)]
        assert [a == b for a, b in zip(before, after, strict=True)] == [True, False, True]
        assert "drained" in (tmp_path / "logs" / "broker-1.log").read_text()
        with pytest.raises(UsageError, match="no broker 7: ids are 0, 1, 2"):
            running.restart_broker(7, silent)
        # A broker that hangs, and so does not drain, is restarted too.
        running.brokers[2].send(signal.SIGSTOP)
        running.restart_broker(2, silent)
        assert running.brokers[2].pid not in (None, after[2])
    finally:
        running.stop(silent)
    assert processes.of_cluster(tmp_path) == []
    with pytest.raises(HeadwaterError, match="the cluster is stopping"):
        running.add_brokers(1, silent)


def test_a_broker_that_cannot_be_added_is_forgotten(tmp_path: Path, free_base_port: int) -> None:
    running = make(tmp_path, free_base_port, brokers=1, **{"exit-with-2": "3"})
    running.start(silent)
    try:
        with pytest.raises(ChildFailedError, match="broker-2 exited with 3"):
            running.add_brokers(2, silent)
        assert running.spec.brokers == 2 and sorted(running.brokers) == [0, 1]
        assert (tmp_path / "broker-1").exists() and not (tmp_path / "broker-2").exists()
        assert [p.name for p in running.state().processes] == ["zookeeper", "broker-0", "broker-1"]
        with (
            socket.create_server(("127.0.0.1", running.spec.slot(2).port)),
            pytest.raises(UsageError, match=r"\(broker-2\) is in use"),
        ):
            running.add_brokers(1, silent)
    finally:
        running.stop(silent)


def test_output_goes_to_the_log_and_brokers_drain(tmp_path: Path, free_base_port: int) -> None:
    running = make(tmp_path, free_base_port)
    running.start(silent)
    running.stop(silent)
    log = (tmp_path / "logs" / "broker-0.log").read_text()
    assert "some other output" in log
    assert "drained" in log
    assert "session_password" not in log


def test_a_broker_that_cannot_start_fails_the_start_and_leaves_nothing(
    tmp_path: Path, free_base_port: int
) -> None:
    running = make(tmp_path, free_base_port, **{"exit-with": "3"})
    with pytest.raises(ChildFailedError, match=r"broker-\d exited with 3: .*disk is on fire"):
        running.start(silent)
    assert processes.of_cluster(tmp_path) == []


def test_a_busy_port_is_named_with_its_remedy(
    supervisor: Supervisor, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = make(tmp_path_factory.mktemp("other"), supervisor.spec.base_port, brokers=1)
    with pytest.raises(UsageError, match=r"port \d+ \(ZooKeeper\) is in use by java .*--port"):
        other.start(silent)


def test_sessions_of_a_killed_supervisor_are_closed_before_the_next_start(
    tmp_path: Path, free_base_port: int
) -> None:
    running = make(tmp_path, free_base_port)
    running.start(silent)
    for broker in running.brokers.values():
        broker.hold()
    assert running.zookeeper is not None
    running.zookeeper.hold()
    # ZooKeeper first: then the brokers' sessions cannot be closed.
    kill_and_wait(running.zookeeper)
    for broker in running.brokers.values():
        assert broker.pid is not None
        os.kill(broker.pid, signal.SIGKILL)
    started = time.monotonic()
    running.stop(silent)
    again = make(tmp_path, free_base_port)
    again.start(silent)  # the stand-ins fail on a node that exists
    again.stop(silent)
    assert time.monotonic() - started < 25.0
