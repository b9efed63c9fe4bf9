"""The Spark task of one broker: keeps `python -m headwater_broker` running. No pyspark.

Spark may kill the worker process at any time (a cancelled job, a lost executor). The broker then
reads EOF on its stdin and drains; no code of the worker has to run for that. One TCP connection
carries reports to the driver and the driver's commands back, as lines of JSON. Its loss means to
the driver that the worker is gone, and to the worker that the driver is gone.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from headwater.errors import HeadwaterError
from headwater.local.broker_command import with_python
from headwater.local.child import ChildSpec, log_tail
from headwater.local.child_restarts import SupervisedChild
from headwater.system import SystemClock
from headwater_spark.cluster.driver_link import (
    LOG_TAIL,
    REPLY,
    RESTART,
    SILENCE_S,
    STOP,
    end_when_silent,
)
from headwater_spark.cluster.executor_host import (
    HOSTNAME_ARGUMENT,
    ExecutorHost,
    argument,
    executor_host,
)

CONNECT_TIMEOUT_S = 10.0
FAILED_STARTS_MAX = 6
"""Starts in a row that never became ready before the task ends: another executor may do better."""
DRAIN_GRACE_S = 10.0
HOST_MARK = "{host}"
"""Placeholder in properties for the address of the executor's machine, which the task finds out."""
RACK_MARK = "{rack}"
"""Placeholder in properties for the machine's rack."""


@dataclass(frozen=True, slots=True)
class BrokerTask:
    """What the task of one broker needs. Picklable."""

    broker_id: int
    name: str
    command: tuple[str, ...]
    """The broker's program and arguments; the task appends `--config FILE`."""
    properties: tuple[tuple[str, str], ...]
    config_path: str
    log_path: str
    driver_host: str
    driver_port: int
    token: str
    """Authenticates the task's reports to the driver."""
    environment: Mapping[str, str] = field(default_factory=dict)
    drain_grace_s: float = DRAIN_GRACE_S
    silence_s: float = SILENCE_S
    """A driver that is silent for so long is gone."""


def run_broker(task: BrokerTask) -> str:
    """Keep the broker running until the driver sends stop or is gone; returns the reason.

    Never raises for the broker's failures, which would count as failures of the Spark task.
    """
    try:
        link = socket.create_connection((task.driver_host, task.driver_port), CONNECT_TIMEOUT_S)
    except OSError as e:
        return f"the driver at {task.driver_host}:{task.driver_port} does not answer: {e}"
    link.settimeout(None)
    end_when_silent(link, task.silence_s)
    with link:
        return _Supervisor(task, link).run()


class _Supervisor:
    """Keeps the broker process running and reports to the driver."""

    def __init__(self, task: BrokerTask, link: socket.socket) -> None:
        self._task = task
        self._link = link
        self._executor = _executor()
        link_address = str(link.getsockname()[0])
        self._host = executor_host(os.environ, self._executor.command, link_address)
        self._lock = threading.Lock()
        self._failed_starts = 0
        self._given_up = ""

    def run(self) -> str:
        self._report("up", host=self._host.address, **self._executor.facts())
        try:
            keeper = SupervisedChild(
                self._child(),
                SystemClock(),
                on_ready=lambda readiness: self._on_ready({"pid": keeper.pid, **readiness}),
                on_gone=self._on_exit,
            )
        except OSError as e:
            return f"{self._task.config_path} can't be written: {e}"
        keeper.start()
        why = self._serve_driver(keeper)
        keeper.ask_to_stop()
        keeper.finish_stop(self._task.drain_grace_s)
        self._report("stopped")
        return self._given_up or why

    def _child(self) -> ChildSpec:
        self._write_config(self._task.properties)
        return ChildSpec(
            name=self._task.name,
            command=(*self._task.command, "--config", self._task.config_path),
            log_path=Path(self._task.log_path),
            environment=self._task.environment,
        )

    def _write_config(self, properties: Iterable[Sequence[str]]) -> None:
        config = Path(self._task.config_path)
        config.parent.mkdir(parents=True, exist_ok=True)
        rows = (f"{key}={_on_host(value, self._host)}\n" for key, value in properties)
        config.write_text("".join(rows))

    def _serve_driver(self, keeper: SupervisedChild) -> str:
        """Carry out the driver's commands until it sends `stop` or is gone, or until this task
        shuts the link; the reason for the end."""
        try:
            with self._link.makefile("rb") as lines:
                for line in lines:
                    request = json.loads(line)
                    if request["command"] == STOP:
                        return "the driver asked to stop"
                    self._answer(keeper, request)
        except OSError as e:
            return f"the driver is gone: {e}"
        return "the driver is gone"

    def _answer(self, keeper: SupervisedChild, request: dict[str, Any]) -> None:
        facts: dict[str, Any] = {}
        try:
            if request["command"] == RESTART:
                self._restart(keeper, str(request["python"]), request["properties"])
            elif request["command"] == LOG_TAIL:
                facts["text"] = log_tail(Path(self._task.log_path), int(request["size"]))
            else:
                facts["error"] = f"this broker's task does not know {request['command']!r}"
        except (HeadwaterError, OSError) as error:
            facts["error"] = str(error)
        self._report(REPLY, request=request["request"], **facts)

    def _restart(
        self, keeper: SupervisedChild, python: str, properties: Iterable[Sequence[str]]
    ) -> None:
        """End the broker's run; its supervision starts the next one, with `python` if given."""
        if python:
            config = keeper.spec.command[-2:]
            keeper.set_command((*with_python(keeper.spec.command[:-2], python), *config))
        self._write_config(properties)
        pid = keeper.pid
        keeper.drain()
        try:
            if pid is not None and not keeper.wait_down(pid, self._task.drain_grace_s):
                keeper.send(signal.SIGKILL)
                keeper.wait_down(pid)
        finally:
            keeper.release()

    def _on_ready(self, readiness: dict[str, Any]) -> None:
        self._failed_starts = 0
        self._report("ready", readiness=readiness)

    def _on_exit(self, code: int) -> None:
        self._report("gone", code=code)
        if code == 0:
            return  # it has drained, for a restart or the end
        self._failed_starts += 1
        if self._failed_starts >= FAILED_STARTS_MAX:
            self._given_up = f"{self._task.name} never became ready here, last exit code {code}"
            self._link.shutdown(socket.SHUT_RD)

    def _report(self, event: str, **facts: Any) -> None:
        row = {"token": self._task.token, "broker_id": self._task.broker_id, "event": event}
        line = json.dumps({**row, **facts}).encode() + b"\n"
        with self._lock:
            try:
                self._link.sendall(line)
            except OSError:
                return  # the driver is gone: the receiving side meets that too, and stops


def _on_host(value: str, host: ExecutorHost) -> str:
    return value.replace(HOST_MARK, host.address).replace(RACK_MARK, host.rack)


@dataclass(frozen=True, slots=True)
class _Executor:
    """The executor JVM that started this worker process; empty if it can't be read."""

    pid: int | None = None
    command: tuple[str, ...] = ()

    def facts(self) -> dict[str, Any]:
        """The worker process and its executor, for display."""
        found: dict[str, Any] = {"worker_pid": os.getpid()}
        if self.pid is not None:
            at = self.command.index("--executor-id") + 1 if "--executor-id" in self.command else 0
            found["executor_pid"] = self.pid
            found["executor_id"] = self.command[at] if at else "driver"
            found["executor_host"] = argument(self.command, HOSTNAME_ARGUMENT)
        return found


def _executor() -> _Executor:
    try:
        for parent in psutil.Process().parents():
            if "java" in parent.name():
                return _Executor(parent.pid, tuple(parent.cmdline()))
    except psutil.Error:
        return _Executor()  # processes of another user: the link's address takes its place
    return _Executor()
