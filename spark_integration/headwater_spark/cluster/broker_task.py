"""The task that is a broker: keeps `python -m headwater_broker` alive on an executor. No pyspark.

The worker process may be killed at any time (a cancelled job, a lost executor). Then the broker
sees EOF on its stdin and drains by itself; nothing here needs to run for that. Reports go to the
driver over one TCP connection, whose loss tells the driver that this worker is gone; commands come
back over it, and its loss tells the worker that the driver is gone.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from headwater.local.child import ChildSpec
from headwater.local.supervised_child import SupervisedChild
from headwater.system import SystemClock

CONNECT_TIMEOUT_S = 10.0
FRUITLESS_STARTS_MAX = 6
"""So many starts in a row that never became ready end the task: elsewhere it may do better."""
DRAIN_GRACE_S = 10.0
HOST_MARK = "{host}"
"""In properties: this executor's host name, which only the task knows."""


@dataclass(frozen=True, slots=True)
class BrokerTask:
    """One broker's slot. Picklable."""

    broker_id: int
    name: str
    command: tuple[str, ...]
    """The program and its arguments, to which `--config FILE` is added."""
    properties: tuple[tuple[str, str], ...]
    config_path: str
    log_path: str
    driver_host: str
    driver_port: int
    token: str
    """Proves to the driver that a report is from one of its tasks."""
    environment: Mapping[str, str] = field(default_factory=dict)
    drain_grace_s: float = DRAIN_GRACE_S


def run_broker(task: BrokerTask) -> str:
    """Keep the broker running until the driver says stop, or is gone; why it ended. Never raises
    for the broker's own failures, which would count against the job."""
    try:
        link = socket.create_connection((task.driver_host, task.driver_port), CONNECT_TIMEOUT_S)
    except OSError as e:
        return f"the driver at {task.driver_host}:{task.driver_port} does not answer: {e}"
    link.settimeout(None)
    with link:
        return _Supervisor(task, link).run()


class _Supervisor:
    """Keeps the child, and speaks with the driver."""

    def __init__(self, task: BrokerTask, link: socket.socket) -> None:
        self._task = task
        self._link = link
        self._lock = threading.Lock()
        self._fruitless = 0
        self._given_up = ""

    def run(self) -> str:
        self._report("up", **_whereabouts())
        try:
            keeper = SupervisedChild(
                self._child(),
                SystemClock(),
                on_ready=lambda told: self._ready({"pid": keeper.pid, **told}),
                on_gone=self._gone,
            )
        except OSError as e:
            return f"{self._task.config_path} can't be written: {e}"
        keeper.start()
        why = self._wait_for_stop()
        keeper.ask_to_stop()
        keeper.finish_stop(self._task.drain_grace_s)
        self._report("stopped")
        return self._given_up or why

    def _child(self) -> ChildSpec:
        config = Path(self._task.config_path)
        config.parent.mkdir(parents=True, exist_ok=True)
        host = socket.gethostname()
        rows = (f"{k}={v.replace(HOST_MARK, host)}\n" for k, v in self._task.properties)
        config.write_text("".join(rows))
        return ChildSpec(
            name=self._task.name,
            command=(*self._task.command, "--config", str(config)),
            log_path=Path(self._task.log_path),
            environment=self._task.environment,
        )

    def _wait_for_stop(self) -> str:
        """The driver writes one line, `stop`, or goes; or the slot gives up and shuts the link."""
        told = b""
        while not told.endswith(b"\n"):
            try:
                part = self._link.recv(64)
            except OSError as e:
                return f"the driver is gone: {e}"
            if not part:
                return "the driver is gone"
            told += part
        return "told to stop"

    def _ready(self, told: dict[str, Any]) -> None:
        self._fruitless = 0
        self._report("ready", told=told)

    def _gone(self, code: int) -> None:
        self._report("gone", code=code)
        self._fruitless += 1
        if self._fruitless >= FRUITLESS_STARTS_MAX:
            self._given_up = f"{self._task.name} never became ready here, last exit code {code}"
            self._link.shutdown(socket.SHUT_RD)

    def _report(self, event: str, **facts: Any) -> None:
        row = {"token": self._task.token, "broker_id": self._task.broker_id, "event": event}
        line = json.dumps({**row, **facts}).encode() + b"\n"
        with self._lock:
            try:
                self._link.sendall(line)
            except OSError:
                return  # the driver is gone; the reading side finds out and stops


def _whereabouts() -> dict[str, Any]:
    """Host, this worker, and the executor's JVM above it."""
    own = psutil.Process()
    found: dict[str, Any] = {"host": socket.gethostname(), "worker_pid": own.pid}
    try:
        for parent in own.parents():
            if "java" in parent.name():
                words = parent.cmdline()
                at = words.index("--executor-id") + 1 if "--executor-id" in words else 0
                found["executor_pid"] = parent.pid
                found["executor_id"] = words[at] if at else "driver"
                break
    except psutil.Error:
        return found  # another user's processes: the cluster works without knowing them
    return found
