"""A standalone Spark cluster: a master on this machine, a worker on each of some hosts.

with StandaloneSpark(network, folder) as standalone:
    with standalone.session() as spark: ...
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from pyspark.sql import SparkSession

import headwater_spark
from headwater.local.zookeeper import is_listening
from integration.jvm_tools import SHORT_LIVED_JVM
from integration.network_hosts import HostNetwork, NetworkHost
from integration.spark_sessions import CONF

MASTER_PORT = 7077
WEB_PORT = 8080
WORKER_TIMEOUT_S = 10
"""After so long a silence the master counts a worker as dead."""
NETWORK_TIMEOUT_S = 20
EXECUTOR_CORES = 3
WORKER_CORES = 2 * EXECUTOR_CORES
"""A worker has room for the executor of a host that died."""
READY_S = 60.0
ENDS_S = 20.0
SPARK_HOME = Path(str(importlib.util.find_spec("pyspark").submodule_search_locations[0]))  # type: ignore[union-attr,index]


class StandaloneSpark:
    """A master, and one worker per host."""

    def __init__(self, network: HostNetwork, folder: Path) -> None:
        self._network = network
        self._folder = folder
        self._master: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The master's URL."""
        return f"spark://{self._network.central_address}:{MASTER_PORT}"

    def __enter__(self) -> StandaloneSpark:
        self._folder.mkdir(parents=True, exist_ok=True)
        host = self._network.central_address
        arguments = ("--host", host, "--port", str(MASTER_PORT), "--webui-port", str(WEB_PORT))
        with open(self._folder / "master.log", "ab") as log:
            self._master = subprocess.Popen(
                [str(SPARK_HOME / "bin" / "spark-class"), f"{MASTER}", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **_daemon_environment(host)},
                start_new_session=True,
            )
        deadline = time.monotonic() + READY_S
        while not is_listening(host, MASTER_PORT):
            assert time.monotonic() < deadline, (self._folder / "master.log").read_text()
            time.sleep(0.05)
        for worker in self._network.hosts:
            self.start_worker(worker)
        # An application that registers before a worker gets two executors on one of the others.
        while self._alive_workers() < len(self._network.hosts):
            assert time.monotonic() < deadline, (self._folder / "master.log").read_text()
            time.sleep(0.1)
        return self

    def _alive_workers(self) -> int:
        """The number of workers that have registered, by the master's own page."""
        page = f"http://{self._network.central_address}:{WEB_PORT}/json/"
        try:
            with urllib.request.urlopen(page, timeout=READY_S) as reply:
                return int(json.load(reply)["aliveworkers"])
        except (urllib.error.URLError, json.JSONDecodeError):
            return 0  # the page comes after the port, and is empty until the master has begun

    def start_worker(self, host: NetworkHost) -> None:
        """Start the worker of a host; its executors end with it."""
        work = self._folder / f"work-{host.name}"
        command = [
            *(str(SPARK_HOME / "bin" / "spark-class"), WORKER, self.url),
            *("--host", host.address, "--webui-port", "0", "--work-dir", str(work)),
            *("--cores", str(WORKER_CORES), "--memory", "4g"),
        ]
        log = self._folder / f"worker-{host.name}.log"
        host.start(command, log, _daemon_environment(host.address))

    @contextmanager
    def session(
        self, brokers: int, conf: Mapping[str, str] | None = None
    ) -> Iterator[SparkSession]:
        """An application with an executor per broker, on different hosts while there are enough."""
        settings = {
            **CONF,
            "spark.driver.host": self._network.central_address,
            "spark.driver.bindAddress": self._network.central_address,
            "spark.executor.cores": str(EXECUTOR_CORES),
            "spark.executor.memory": "512m",
            "spark.cores.max": str(brokers * EXECUTOR_CORES),
            "spark.network.timeout": f"{NETWORK_TIMEOUT_S}s",
            "spark.network.timeoutInterval": "5s",
            "spark.executor.heartbeatInterval": "2s",
            **(conf or {}),
        }
        spark = headwater_spark.session(self.url, delta=False, conf=settings)
        spark.sparkContext.setLogLevel("ERROR")
        try:
            yield spark
        finally:
            spark.stop()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for host in self._network.hosts:
            host.end()
        if self._master is not None:
            os.killpg(self._master.pid, signal.SIGTERM)
            self._master.wait(ENDS_S)


MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"


def _daemon_environment(address: str) -> dict[str, str]:
    return {
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": address,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": f"{SHORT_LIVED_JVM} -Dspark.worker.timeout={WORKER_TIMEOUT_S}",
        "PYSPARK_PYTHON": sys.executable,
    }
