"""A standalone Spark cluster on this machine: a master and workers, as processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil
import pyspark

SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"
START_S = 60.0
HOST = "127.0.0.1"
HEAP = "256m"
"""Of the master and of each worker."""


@contextmanager
def standalone(
    folder: Path,
    port: int,
    workers: int,
    *,
    cores: int,
    memory: str,
    hosts: Sequence[str] = (HOST,),
) -> Iterator[str]:
    """A master on `port`, its web page on the next one, and workers with these resources; its URL.
    The workers have these addresses in turn; Spark runs two attempts of a task on different ones
    only. All processes are ended afterwards."""
    url = f"spark://{HOST}:{port}"
    started: list[subprocess.Popen[bytes]] = []
    try:
        started.append(_start(folder, "master", HOST, MASTER, "--port", str(port), "--webui-port",
                              str(port + 1)))  # fmt: skip
        for number in range(workers):
            host = hosts[number % len(hosts)]
            started.append(
                _start(folder, f"worker-{number}", host, WORKER, "-c", str(cores), "-m",
                       memory, "-d", str(folder / f"worker-{number}"), "--webui-port",
                       str(port + 2 + number), url)
            )  # fmt: skip
        _wait_for_workers(port + 1, workers)
        yield url
    finally:
        for process in reversed(started):
            _end(process)


def _start(folder: Path, name: str, host: str, *command: str) -> subprocess.Popen[bytes]:
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / f"{name}.log", "ab") as log:
        return subprocess.Popen(
            [str(SPARK_CLASS), *command[:1], "--host", host, *command[1:]],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env={
                **os.environ,
                "PYSPARK_PYTHON": sys.executable,
                "SPARK_DAEMON_MEMORY": HEAP,
                "SPARK_LOCAL_IP": host,
            },
        )


def _wait_for_workers(page: int, workers: int) -> None:
    deadline = time.monotonic() + START_S
    while True:
        try:
            with urllib.request.urlopen(f"http://{HOST}:{page}/json/", timeout=5) as reply:
                text = reply.read().decode()
            if text.count('"ALIVE"') >= workers + 1:  # the master's own state is one
                return
        except (urllib.error.URLError, OSError):
            pass  # the master does not listen yet
        assert time.monotonic() < deadline, "the standalone cluster did not start"
        time.sleep(0.1)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process with the executors that it has started."""
    try:
        children = psutil.Process(process.pid).children(recursive=True)
    except psutil.Error:
        children = []
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(10)
    for child in children:
        try:
            child.kill()
        except psutil.NoSuchProcess:
            continue
