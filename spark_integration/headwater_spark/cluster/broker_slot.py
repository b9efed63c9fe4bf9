"""The driver's state of one broker: its Spark job, the job's task, the broker process.

State only: `broker_job_restarts` changes it, and submits the job again when its executor is lost.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headwater.local.child import last_error_line
from headwater.local.cluster_spec import Slot
from headwater.local.manager import BrokerState
from headwater.local.processes import ProcessRef
from headwater_spark.cluster.driver_link import Report, TaskLink


@dataclass(slots=True)
class BrokerSlot:
    """State of one slot. Changed only under the manager's lock."""

    slot: Slot
    log_path: Path
    host: str
    one_host: bool
    command: tuple[str, ...]
    """The broker's program and arguments, without its configuration."""
    link: TaskLink | None = None
    task_facts: Report = field(default_factory=dict)
    readiness: dict[str, Any] | None = None
    """The broker's ready message; None while it does not serve."""
    process: ProcessRef | None = None
    times_ready: int = 0
    submissions: int = 0
    failure: str = ""
    """Why the broker's first start failed; empty while that is open."""
    home: str = ""
    """The host that has the broker's data, by Spark's name for its executor; empty: none yet."""
    is_held: bool = False
    """True while the broker is stopped: no job is submitted for it."""
    is_removed: bool = False
    thread: threading.Thread | None = None
    """Submits the broker's job; it ends when the broker is removed or the cluster stops."""

    @property
    def group(self) -> str:
        """The Spark job group of the broker's job."""
        return f"headwater-{self.slot.name}"

    @property
    def is_down(self) -> bool:
        """True when neither a task nor, as far as it is known here, a process of it runs."""
        return self.link is None and self.process is None

    def state(self) -> BrokerState:
        """A snapshot for callers."""
        return BrokerState(
            broker_id=self.slot.broker_id,
            address=f"{self.host}:{self.slot.port}",
            ready=self.readiness is not None,
            restarts=max(0, self.times_ready - 1),
            pid=self.readiness.get("pid") if self.readiness else None,
            host=self.task_facts.get("host"),
            executor_id=self.task_facts.get("executor_id"),
            executor_pid=self.task_facts.get("executor_pid"),
            log_path=str(self.log_path),
            python=self.command[0],
        )

    def on_task_up(self, report: Report, link: TaskLink) -> None:
        """A task of this slot has started on an executor.

        An earlier task that still has its connection is on a machine that Spark has given up. It is
        told to stop: should that machine come back, its broker must not compete with the new one.
        """
        if self.link is not None:
            self.link.ask_to_stop()
            self.link.close()
        self.link = link
        self.readiness = None
        self.task_facts = report
        if not self.one_host:
            self.host = str(report["host"])

    def is_current(self, link: TaskLink) -> bool:
        """Whether the task of this connection is the slot's latest."""
        return self.link is link

    def on_ready(self, readiness: dict[str, Any]) -> None:
        """The broker process serves."""
        self.readiness = readiness
        self.times_ready += 1
        self.failure = ""
        pid = readiness.get("pid")
        if self.one_host and isinstance(pid, int):
            self.process = ProcessRef.of(self.slot.name, pid)

    def on_exit(self, code: int) -> None:
        """The broker process has ended; its task restarts it."""
        self.readiness = None
        self.process = None
        if self.times_ready == 0:
            error = f": {last_error_line(self.log_path)}" if self.one_host else ""
            where = str(self.log_path) if self.one_host else f"{self.log_path} on {self.host}"
            self.failure = (
                f"{self.slot.name} exited with {code} before it was ready{error} (log: {where})"
            )

    def on_task_lost(self, link: TaskLink) -> ProcessRef | None:
        """The task has ended; returns the broker process, which may still be draining."""
        if not self.is_current(link):
            return None  # a later task has reported already
        self.link = None
        self.readiness = None
        self.task_facts = {}
        process, self.process = self.process, None
        return process
