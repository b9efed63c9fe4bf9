"""Brokers as Spark jobs: spread, restarted, stopped. With a stand-in for the broker process."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JError

from headwater.errors import HeadwaterError, UsageError
from headwater.local import cluster_file
from headwater.local.change_requests import (
    ADD_BROKERS,
    LOG_TAIL,
    REMOVE_BROKER,
    RESTART_BROKER,
    START_BROKER,
    STATUS,
    STOP_BROKER,
)
from headwater.local.child import ChildFailedError
from headwater.local.supervisor_socket import SocketManagerClient
from headwater.local.zk_requests import ZkManagerClient
from headwater_spark.cluster.cluster import Cluster
from headwater_spark.cluster.interrupts import cancel_others
from integration.conftest import next_base_port
from integration.spark_sessions import spark_session

pytestmark = pytest.mark.integration

FAKE_BROKER = (sys.executable, str(Path(__file__).with_name("fake_broker.py")))
WAIT_S = 60.0


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    with spark_session("local-cluster[3,3,1500]", delta=False) as session:
        yield session


@pytest.fixture
def start(spark: Any, tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    started: list[Cluster] = []

    def start_one(brokers: int = 3, **more: Any) -> Cluster:
        options = {"port": next_base_port(tmp_path), "broker_command": FAKE_BROKER, **more}
        started.append(Cluster.start(spark, brokers, tmp_path / "data", **options))
        return started[-1]

    yield start_one
    for cluster in started:
        cluster.stop()


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def alive(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")


def test_brokers_are_spread_restarted_and_stopped(start: Any, spark: Any, tmp_path: Path) -> None:
    cluster = start()
    servers = cluster.bootstrap_servers
    assert len({b.executor_id for b in cluster.brokers}) == 3
    assert spark.range(0, 100, 1, 3).count() == 100  # jobs beside the brokers
    known = cluster_file.load(tmp_path / "data")
    assert known is not None and known.kind == "spark" and known.running

    first = cluster.brokers[0]
    os.kill(first.pid, signal.SIGKILL)
    wait_for(lambda: cluster.restarts == 1 and cluster.wait_ready(0))
    assert cluster.brokers[0].executor_id == first.executor_id

    second = cluster.brokers[1]
    os.kill(second.executor_pid, signal.SIGKILL)
    wait_for(lambda: cluster.restarts == 2 and cluster.wait_ready(0))
    assert cluster.brokers[1].executor_id != second.executor_id
    wait_for(lambda: not alive(second.pid))
    assert (tmp_path / "data" / "broker-1" / "drained").exists()

    assert cluster.bootstrap_servers == servers
    pids = [b.pid for b in cluster.brokers]
    pids += [p.pid for p in cluster_file.load(tmp_path / "data").processes]
    cluster.stop()
    assert not [pid for pid in pids if alive(pid)]
    known = cluster_file.load(tmp_path / "data")
    assert known is not None and not known.running and known.processes == ()


def test_an_interrupt_spares_the_brokers(start: Any, spark: Any) -> None:
    import threading

    cluster = start()
    pids = [b.pid for b in cluster.brokers]
    outcome: list[str] = []

    def busy() -> None:
        try:
            spark.sparkContext.parallelize([0], 1).map(lambda _: time.sleep(60)).collect()
        except Py4JError as e:
            outcome.append(str(e))

    thread = threading.Thread(target=busy)
    thread.start()
    wait_for(lambda: len(spark.sparkContext.statusTracker().getActiveJobsIds()) == 4)
    cancel_others(spark.sparkContext, tuple(f"headwater-broker-{i}" for i in range(3)))
    thread.join(WAIT_S)
    assert outcome and "cancel" in outcome[0].lower()
    assert [b.pid for b in cluster.brokers] == pids


@pytest.mark.long
def test_a_folder_has_one_cluster_and_keeps_it(start: Any, spark: Any, tmp_path: Path) -> None:
    cluster = start()
    cluster_id = cluster.status()["cluster_id"]
    assert Cluster.start(spark, 3, tmp_path / "data") is cluster
    with pytest.raises(UsageError, match="other brokers and port runs in"):
        Cluster.start(spark, 2, tmp_path / "data", port=1)
    with pytest.raises(UsageError, match="other properties runs in"):
        Cluster.start(spark, dir=tmp_path / "data", properties={"num.partitions": "2"})
    cluster.stop()
    again = start()
    assert again.status()["cluster_id"] == cluster_id


SCRIPT = """
import sys
import headwater_spark

def start():
    spark = headwater_spark.session("local[3]", delta=False, conf={"spark.ui.enabled": "false"})
    spark.sparkContext.setLogLevel("ERROR")
    cluster = headwater_spark.Cluster.start(spark, 1, folder, **options)
    assert headwater_spark.Cluster.start(spark, 1, folder, **options) is cluster
    print("<", end="", file=sys.stderr, flush=True)
    return spark, cluster

folder, port, *command = sys.argv[1:]
options = {"port": int(port), "broker_command": tuple(command)}
spark, first = start()
spark.stop()
print(">", end="", file=sys.stderr, flush=True)
_, second = start()
assert second is not first and second.status()["cluster_id"] == first.status()["cluster_id"]
"""


LOST_DRIVER = """
import sys
import time
import headwater_spark

folder, port, *command = sys.argv[1:]
spark = headwater_spark.session("local[3]", delta=False, conf={"spark.ui.enabled": "false"})
cluster = headwater_spark.Cluster.start(
    spark, 1, folder, int(port), broker_command=tuple(command)
)
print(cluster.brokers[0].pid, flush=True)
time.sleep(600)
"""


@pytest.mark.long
def test_a_script_that_never_stops_its_cluster_ends_quietly(tmp_path: Path) -> None:
    """At spark.stop(), and up to the end of its JVM, which outlives the Python process."""
    data = tmp_path / "data"
    arguments = [str(data), str(next_base_port(tmp_path)), *FAKE_BROKER]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=4 * WAIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    _, at_stop, at_end = done.stderr.split("<")
    assert (at_stop[:1], at_end) == (">", ""), done.stderr
    assert (data / "broker-0" / "drained").exists()
    known = cluster_file.load(data)
    assert known is not None and not known.running


def test_an_operator_changes_brokers_through_the_folder_and_through_zookeeper(
    start: Any, tmp_path: Path
) -> None:
    cluster = start(2)
    before = [b.pid for b in cluster.brokers]
    here = SocketManagerClient(tmp_path / "data")
    there = ZkManagerClient(cluster.status()["zookeeper"])
    events = list(there.ask(ADD_BROKERS, count=1))
    assert events[-1]["brokers"] == {"2": cluster.brokers[2].address}
    assert len({b.executor_id for b in cluster.brokers}) == 3
    assert cluster_file.load(tmp_path / "data").brokers == 3
    assert cluster.bootstrap_servers.endswith(cluster.brokers[2].address)

    list(here.ask(RESTART_BROKER, broker_id=1, python=""))
    after = [b.pid for b in cluster.brokers]
    assert [a == b for a, b in zip(before, after, strict=False)] == [True, False]
    assert (tmp_path / "data" / "broker-1" / "drained").exists()

    with pytest.raises(UsageError, match="cannot run a broker"):
        list(there.ask(RESTART_BROKER, broker_id=1, python=shutil.which("false")))
    assert [b.pid for b in cluster.brokers] == after  # it was not stopped
    other = tmp_path / "python"
    other.symlink_to(sys.executable)
    list(there.ask(RESTART_BROKER, broker_id=1, python=str(other)))
    assert [b.python == str(other) for b in cluster.brokers] == [False, True, False]

    list(there.ask(STOP_BROKER, broker_id=0))
    assert not alive(before[0]) and not cluster.brokers[0].ready
    list(there.ask(START_BROKER, broker_id=0))
    assert cluster.wait_ready(0)

    [done] = [e for e in there.ask(REMOVE_BROKER, broker_id=0) if e["event"] == "done"]
    assert done["folders"] == [str(tmp_path / "data" / "broker-0")]
    assert [b.broker_id for b in cluster.brokers] == [1, 2]
    assert cluster_file.load(tmp_path / "data").spec(tmp_path).broker_ids == (1, 2)
    with pytest.raises(UsageError, match="no broker 0: the brokers are 1, 2"):
        list(there.ask(RESTART_BROKER, broker_id=0))
    for client in (here, there):
        with pytest.raises(HeadwaterError, match=r"broker-1\.log"):  # the stand-in writes no log
            (tmp_path / "data" / "logs" / "broker-1.log").unlink(missing_ok=True)
            list(client.ask(LOG_TAIL, broker_id=1, size=100))


@pytest.mark.long
def test_a_cluster_has_one_driver(start: Any, spark: Any, tmp_path: Path) -> None:
    cluster = start(1)
    zookeeper = cluster.status()["zookeeper"]
    with pytest.raises(
        UsageError, match=f"another driver manages this cluster: .*pid {os.getpid()}"
    ):
        Cluster.start(
            spark,
            1,
            tmp_path / "other",
            port=next_base_port(tmp_path),
            zookeeper=zookeeper,
            broker_command=FAKE_BROKER,
        )
    cluster.stop()
    with pytest.raises(HeadwaterError, match="ZooKeeper"):
        list(ZkManagerClient(zookeeper).ask(STATUS))


@pytest.mark.long
def test_brokers_that_a_lost_driver_left_are_ended_before_the_next_start(
    start: Any, tmp_path: Path
) -> None:
    port = next_base_port(tmp_path)
    script = LOST_DRIVER
    arguments = [str(tmp_path / "data"), str(port), *FAKE_BROKER]
    driver = subprocess.Popen(
        [sys.executable, "-c", script, *arguments], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    assert driver.stdout is not None
    pid = int(driver.stdout.readline())
    driver.kill()
    driver.wait()
    cluster = start(1, port=port)
    assert not alive(pid)
    assert cluster.brokers[0].ready and cluster.brokers[0].pid != pid


def test_too_few_slots_fail_at_once(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"use local-cluster\[4,3,1500\]"):
        Cluster.start(spark, 4, tmp_path / "data")
    assert not (tmp_path / "data").exists()


@pytest.mark.long
def test_the_error_of_a_broker_that_cannot_start_is_shown(start: Any, tmp_path: Path) -> None:
    broken = tmp_path / "data" / "broker-2" / "broken"
    broken.parent.mkdir(parents=True)
    broken.write_text("")
    with pytest.raises(ChildFailedError, match="this disk is broken"):
        start()
    assert not cluster_file.load(tmp_path / "data").running
