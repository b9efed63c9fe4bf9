"""A broker's task on a host that falls silent: driver and task give each other up. No Spark."""

from __future__ import annotations

import json
import pickle
import queue
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.system import SystemEntropy
from headwater_spark.cluster.broker_files import HOST_MARK
from headwater_spark.cluster.broker_task import BrokerTask
from headwater_spark.cluster.driver_link import DriverLink, Report, TaskLink
from headwater_spark.cluster.entry_tokens import EntryTokens
from integration.cluster import LocalCluster
from integration.network_hosts import HostNetwork, network_hosts, refusal

pytestmark = pytest.mark.integration

FAKE_BROKER = (sys.executable, str(Path(__file__).with_name("fake_broker.py")))
RUN_TASK = "import pickle,sys; from headwater_spark.cluster.broker_task import run_broker; "
RUN_TASK += "print(run_broker(pickle.load(open(sys.argv[1], 'rb'))))"
SILENCE_S = 3.0
WAIT_S = 20.0


@pytest.fixture
def network(tmp_path: Path) -> Iterator[HostNetwork]:
    if refusal():
        pytest.skip(f"no network namespaces here: {refusal()}")
    with network_hosts(tmp_path, 2, private=[tmp_path / "data"]) as hosts:
        yield hosts


class Driver:
    """Keeps the reports of tasks, and the order in which connections are lost."""

    def __init__(self, host: str, properties: dict[str, str]) -> None:
        self.properties = properties
        self.tokens = EntryTokens(SystemEntropy())
        self.reports: queue.Queue[Report] = queue.Queue()
        self.lost: queue.Queue[int] = queue.Queue()
        self.link = DriverLink(
            host, self.tokens.admits, self._on_report, self._on_lost, silence_s=SILENCE_S
        )

    def _on_report(self, report: Report, link: TaskLink) -> None:
        if report["event"] == "up":
            link.welcome(properties=list(self.properties.items()))
        self.reports.put(report)

    def _on_lost(self, broker_id: int, _link: TaskLink) -> None:
        self.lost.put(broker_id)

    def expect(self, event: str) -> Report:
        report = self.reports.get(timeout=WAIT_S)
        assert report["event"] == event, report
        return report


def test_both_sides_give_up_a_host_that_is_cut_off(network: HostNetwork, tmp_path: Path) -> None:
    (data,) = network[0].private
    rows = {
        "broker.id": "0",
        "listeners": "PLAINTEXT://0.0.0.0:9092",
        "advertised.listeners": f"PLAINTEXT://{HOST_MARK}:9092",
        "log.dirs": str(data / "broker-0"),
    }
    driver = Driver(network.central_address, rows)
    task = BrokerTask(
        broker_id=0,
        name="broker-0",
        command=FAKE_BROKER,
        config_path=str(data / "conf" / "broker-0.properties"),
        log_path=str(data / "broker-0.log"),
        driver_host=network.central_address,
        driver_port=driver.link.port,
        token=driver.tokens.issue(0),
        silence_s=SILENCE_S,
    )
    (tmp_path / "task").write_bytes(pickle.dumps(task))
    host = network[0]
    try:
        host.start([sys.executable, "-c", RUN_TASK, str(tmp_path / "task")], tmp_path / "log")
        assert driver.expect("up")["host"] == host.address
        driver.expect("ready")
        config = (host.disk(data) / "conf" / "broker-0.properties").read_text()
        assert f"advertised.listeners=PLAINTEXT://{host.address}:9092\n" in config
        time.sleep(2 * SILENCE_S)  # an idle link is not a silent peer
        assert driver.lost.empty() and host.processes("fake_broker")

        host.cut()
        cut = time.monotonic()
        assert driver.lost.get(timeout=WAIT_S) == 0
        assert time.monotonic() - cut < 3 * SILENCE_S
        LocalCluster.wait_until(lambda: not host.processes("fake_broker"), "the broker's end")
        assert (host.disk(data) / "broker-0" / "drained").exists()
        log = tmp_path / "log"  # the task writes it once its broker has ended
        LocalCluster.wait_until(lambda: "the driver is gone" in log.read_text(), "the task's end")
    finally:
        driver.link.close()


def test_a_host_has_an_address_a_name_and_disks_of_its_own(
    network: HostNetwork, tmp_path: Path
) -> None:
    (data,) = network[0].private
    probe = "import json,os,socket; print(json.dumps([os.getpid(), socket.gethostname()])); "
    probe += f"open({str(data / 'mark')!r}, 'w').write(socket.gethostname())"
    for number, host in enumerate(network.hosts):
        log = tmp_path / f"log-{number}"
        assert host.start([sys.executable, "-c", probe], log).wait(WAIT_S) == 0, log.read_text()
        pid, name = json.loads(log.read_text())
        assert name == host.name and pid < 100, "a PID namespace of its own"
        assert (host.disk(data) / "mark").read_text() == host.name
    assert not (data / "mark").exists()
    assert network[0].address != network[1].address
