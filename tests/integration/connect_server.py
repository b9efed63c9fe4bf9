"""A Spark Connect server in a process of its own, with the Python that runs the tests."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import pytest

from integration.jvm_tools import SHORT_LIVED_JVM

NEEDED = ("grpc", "grpc_status", "google.rpc", "zstandard")
"""What pyspark's extra `connect` installs."""
START_S = 60
STOP_S = 30


def need(*modules: str) -> None:
    """Skip the test unless these modules and those of Spark Connect can be imported."""
    for module in (*NEEDED, *modules):
        pytest.importorskip(module, reason=f"pyspark's extras connect, pipelines: no {module}")


def environment() -> dict[str, str]:
    """For Spark's own scripts: this Python, this pyspark."""
    spec = find_spec("pyspark")
    assert spec is not None and spec.origin is not None
    mine = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    return {**os.environ, **mine, "SPARK_HOME": str(Path(spec.origin).parent)}


class ConnectServer:
    """`spark-submit --class ...SparkConnectServer`, as Spark's start-connect-server.sh runs it."""

    def __init__(self, folder: Path, port: int, conf: Mapping[str, str]) -> None:
        self.url = f"sc://127.0.0.1:{port}"
        self._port = port
        self._log = folder / "connect-server.log"
        settings = {
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(port),
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.driver.extraJavaOptions": SHORT_LIVED_JVM,
            **conf,
        }
        rows = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
        submit = str(Path(sys.executable).with_name("spark-submit"))
        main = ("--class", "org.apache.spark.sql.connect.service.SparkConnectServer")
        self._command = [submit, *main, "--master", "local[2]", *rows, "spark-internal"]
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> ConnectServer:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._folder,
                env=environment(),
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_S
        while not self._accepts():
            is_running = self._process.poll() is None and time.monotonic() < deadline
            assert is_running, f"no Connect server: {self._log.read_text()[-2000:]}"
            time.sleep(0.1)
        return self

    def __exit__(self, *_error: object) -> None:
        """End the server. Stop the clients' sessions first: they would try to reach it again."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGTERM)
        self._process.wait(STOP_S)

    def _accepts(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == 0
