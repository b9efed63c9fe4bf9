"""The Spark task of one broker: keeps `python -m headwater_broker` running. No pyspark.

`headwater.local.child_restarts` sees the end of the process and starts it again; when Spark loses
the task itself, `broker_job_restarts` submits it anew.

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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from headwater.errors import HeadwaterError, UsageError
from headwater.local.broker_command import with_python
from headwater.local.child import ChildSpec, log_tail
from headwater.local.child_restarts import SupervisedChild
from headwater.system import SystemClock
from headwater_spark.cluster import driver_link
from headwater_spark.cluster.broker_files import BrokerFiles
from headwater_spark.cluster.driver_link import (
    REFUSE,
    REPLY,
    SILENCE_S,
    WELCOME,
    Report,
    end_when_silent,
)
from headwater_spark.cluster.executor_host import HOSTNAME_ARGUMENT, argument, executor_host
from headwater_spark.cluster.link_channel import Channel, to_driver

CONNECT_TIMEOUT_S = 10.0
FAILED_STARTS_MAX = 6
"""Starts in a row that never became ready before the task ends: another executor may do better."""
DRAIN_GRACE_S = 10.0
PRIVATE_UMASK = 0o077
REFUSED = "the driver has let another task in with the same entry token"
DRIVER_ASKED = "the driver asked to stop"
DRIVER_GONE = "the driver is gone"


@dataclass(frozen=True, slots=True)
class BrokerTask:
    """What the task of one broker needs to reach the driver. Picklable.

    Spark ships it in the clear by default, so there is no secret in it but the
    token, which is soon used up."""

    broker_id: int
    name: str
    command: tuple[str, ...]
    """The broker's program and arguments; the task appends `--config FILE`."""
    config_path: str
    log_path: str
    driver_host: str
    driver_port: int
    token: str = field(repr=False)
    """Lets the task in at the driver, once (`entry_tokens`)."""
    fingerprint: str = ""
    """That of the driver's certificate, in a secure cluster; empty: a connection without TLS."""
    security_folder: str = ""
    """Where the broker's key and certificates are, in a secure cluster."""
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
        end_when_silent(link, task.silence_s)
        with link:
            channel = to_driver(link, task.fingerprint)
            link.settimeout(None)
            return _Supervisor(task, channel, str(link.getsockname()[0])).run()
    except OSError as e:
        return f"the driver at {task.driver_host}:{task.driver_port} does not answer: {e}"


class _Supervisor:
    """Keeps the broker process running and reports to the driver."""

    def __init__(self, task: BrokerTask, channel: Channel, link_address: str) -> None:
        self._task = task
        self._channel = channel
        self._executor = _executor()
        self._host = executor_host(os.environ, self._executor.command, link_address)
        security = Path(task.security_folder) if task.security_folder else None
        self._files = BrokerFiles(task.name, Path(task.config_path), security)
        self._failed_starts = 0
        self._given_up = ""

    def run(self) -> str:
        request = self._files.signing_request().decode() if self._task.fingerprint else ""
        self._report(
            "up",
            token=self._task.token,
            host=self._host.address,
            signing_request=request,
            **self._executor.facts(),
        )
        try:
            welcome = self._next_command()
            if welcome is None or welcome["command"] != WELCOME:
                return _refusal(welcome)
            self._prepare(welcome)
            keeper = SupervisedChild(
                self._child(),
                SystemClock(),
                on_ready=lambda readiness: self._on_ready({"pid": keeper.pid, **readiness}),
                on_gone=self._on_exit,
            )
        except (HeadwaterError, OSError, ValueError) as e:
            return f"{self._task.name} can't be set up: {e}"
        keeper.start()
        why = self._serve_driver(keeper)
        keeper.ask_to_stop()
        keeper.finish_stop(self._task.drain_grace_s)
        self._report("stopped")
        return self._given_up or why

    def _prepare(self, welcome: Report) -> None:
        """Write what the driver has sent: the certificate for this task's key, the properties."""
        if self._task.fingerprint:
            self._files.install(str(welcome["certificate"]), str(welcome["trusted"]))
        self._files.write_config(welcome["properties"], self._host)

    def _child(self) -> ChildSpec:
        return ChildSpec(
            name=self._task.name,
            command=(*self._task.command, "--config", self._task.config_path),
            log_path=Path(self._task.log_path),
            environment=self._task.environment,
            umask=PRIVATE_UMASK if self._task.fingerprint else None,
        )

    def _next_command(self) -> Report | None:
        """The driver's next command; None when it is gone, or this task has shut the link."""
        line = self._channel.receive()
        return json.loads(line) if line else None

    def _serve_driver(self, keeper: SupervisedChild) -> str:
        """Carry out the driver's commands until it sends `stop` or is gone, or until this task
        shuts the link; the reason for the end."""
        try:
            while (request := self._next_command()) is not None:
                if "request" not in request:
                    return _refusal(request)
                self._answer(keeper, request)
        except (OSError, ValueError) as e:
            return f"{DRIVER_GONE}: {e}"
        return DRIVER_GONE

    def _answer(self, keeper: SupervisedChild, request: Report) -> None:
        facts: Report = {}
        try:
            facts = self._carried_out(keeper, request)
        except (HeadwaterError, OSError) as error:
            facts["error"] = str(error)
        self._report(REPLY, request=request["request"], **facts)

    def _carried_out(self, keeper: SupervisedChild, request: Report) -> Report:
        """Carry out a command; what to reply. Raises HeadwaterError, OSError."""
        match request["command"]:
            case driver_link.RESTART:
                self._restart(keeper, str(request["python"]), request["properties"])
                return {}
            case driver_link.LOG_TAIL:
                return {"text": log_tail(Path(self._task.log_path), int(request["size"]))}
            case driver_link.RENEW:
                return {"signing_request": self._files.signing_request().decode()}
            case driver_link.INSTALL:
                self._files.install(str(request["certificate"]), str(request["trusted"]))
                return {}
            case other:
                raise UsageError(f"this broker's task does not know {other!r}")

    def _restart(
        self, keeper: SupervisedChild, python: str, properties: Iterable[Sequence[str]]
    ) -> None:
        """End the broker's run; its supervision starts the next one, with `python` if given."""
        if python:
            config = keeper.spec.command[-2:]
            keeper.set_command((*with_python(keeper.spec.command[:-2], python), *config))
        self._files.write_config(properties, self._host)
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
            self._channel.close()

    def _report(self, event: str, **facts: Any) -> None:
        row = {"broker_id": self._task.broker_id, "event": event}
        try:
            self._channel.send(json.dumps({**row, **facts}).encode() + b"\n")
        except OSError:
            return  # the driver is gone: the receiving side meets that too, and stops


def _refusal(command: Report | None) -> str:
    """Why a task ends, from the driver's word; None: it is gone."""
    if command is None:
        return DRIVER_GONE
    return REFUSED if command["command"] == REFUSE else DRIVER_ASKED


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
