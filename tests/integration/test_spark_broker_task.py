"""The Spark task of a broker, without Spark: which process ends when another one dies."""

from __future__ import annotations

import os
import pickle
import queue
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.system import SystemEntropy
from headwater_spark.cluster.broker_task import BrokerTask
from headwater_spark.cluster.driver_link import DriverLink, Report, TaskLink
from headwater_spark.cluster.entry_tokens import EntryTokens

pytestmark = pytest.mark.integration

FAKE_BROKER = (sys.executable, str(Path(__file__).with_name("fake_broker.py")))
RUN_TASK = "import pickle,sys; from headwater_spark.cluster.broker_task import run_broker; "
RUN_TASK += "print(run_broker(pickle.load(sys.stdin.buffer)))"
WAIT_S = 20.0


class Driver:
    """The driver's side: collects the reports of tasks."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.port = port
        self.reports: queue.Queue[tuple[Report, TaskLink]] = queue.Queue()
        self.lost: queue.Queue[int] = queue.Queue()
        self.tokens = EntryTokens(SystemEntropy())
        self.token = self.tokens.issue(4)
        self.link = DriverLink(
            "127.0.0.1",
            self.tokens.admits,
            self._report,
            lambda broker_id, _link: self.lost.put(broker_id),
        )
        self.workers: list[subprocess.Popen[bytes]] = []

    def _report(self, report: Report, link: TaskLink) -> None:
        if report["event"] == "up":
            rows = {
                "broker.id": "4",
                "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
                "log.dirs": str(self.folder / "broker-4"),
            }
            link.welcome(properties=list(rows.items()))
        self.reports.put((report, link))

    def start_task(self, token: str = "") -> subprocess.Popen[bytes]:
        task = BrokerTask(
            broker_id=4,
            name="broker-4",
            command=FAKE_BROKER,
            config_path=str(self.folder / "conf" / "broker-4.properties"),
            log_path=str(self.folder / "broker-4.log"),
            driver_host="127.0.0.1",
            driver_port=self.link.port,
            token=token or self.token,
        )
        worker = subprocess.Popen(
            [sys.executable, "-c", RUN_TASK], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert worker.stdin is not None
        worker.stdin.write(pickle.dumps(task))
        worker.stdin.close()
        self.workers.append(worker)
        return worker

    def expect(self, event: str) -> tuple[Report, TaskLink]:
        report, link = self.reports.get(timeout=WAIT_S)
        assert report["event"] == event, report
        return report, link

    def ready_pid(self) -> int:
        report, _ = self.expect("ready")
        return int(report["readiness"]["pid"])


@pytest.fixture
def driver(tmp_path: Path, free_base_port: int) -> Iterator[Driver]:
    found = Driver(tmp_path, free_base_port)
    yield found
    found.link.close()
    for worker in found.workers:
        if worker.poll() is None:
            worker.kill()
        worker.wait(WAIT_S)


def wait_gone(pid: int) -> None:
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        if not os.path.exists(f"/proc/{pid}"):
            return
        time.sleep(0.02)
    raise AssertionError(f"process {pid} lives on")


def reason(worker: subprocess.Popen[bytes]) -> str:
    """The reason for its end that the task returned."""
    worker.wait(WAIT_S)
    assert worker.stdout is not None
    return worker.stdout.read().decode()


def test_it_reports_restarts_and_stops(driver: Driver, tmp_path: Path) -> None:
    worker = driver.start_task()
    report, link = driver.expect("up")
    assert report["worker_pid"] == worker.pid
    pid = driver.ready_pid()
    os.kill(pid, signal.SIGKILL)
    gone, _ = driver.expect("gone")
    assert gone["code"] == -signal.SIGKILL
    assert driver.ready_pid() != pid
    link.ask_to_stop()
    assert driver.expect("gone")[0]["code"] == 0
    assert (tmp_path / "broker-4" / "drained").exists()
    driver.expect("stopped")
    assert "the driver asked to stop" in reason(worker)


def test_a_killed_worker_lets_its_broker_drain(driver: Driver, tmp_path: Path) -> None:
    worker = driver.start_task()
    driver.expect("up")
    pid = driver.ready_pid()
    worker.kill()
    wait_gone(pid)
    assert (tmp_path / "broker-4" / "drained").exists()
    assert driver.lost.get(timeout=WAIT_S) == 4


def test_a_lost_driver_ends_the_task_and_its_broker(driver: Driver) -> None:
    worker = driver.start_task()
    driver.expect("up")
    pid = driver.ready_pid()
    driver.link.close()
    assert "the driver is gone" in reason(worker)
    wait_gone(pid)


def test_a_broker_that_never_starts_ends_the_task(driver: Driver, tmp_path: Path) -> None:
    broken = tmp_path / "broker-4" / "broken"
    broken.parent.mkdir()
    broken.write_text("")
    worker = driver.start_task()
    driver.expect("up")
    assert driver.expect("gone")[0]["code"] == 3
    # Back-off makes the six starts slow; the reports so far are what this test needs.
    worker.kill()


def test_a_task_without_the_token_is_refused(driver: Driver) -> None:
    worker = driver.start_task(token="wrong")
    assert "the driver has let another task in" in reason(worker)
    assert driver.reports.empty()


def test_a_token_lets_one_task_in(driver: Driver) -> None:
    driver.start_task()
    driver.expect("up")
    assert "the driver has let another task in" in reason(driver.start_task())
