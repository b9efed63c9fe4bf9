"""What the driver knows of one broker's slot: its job, its task, its process."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headwater.local.child import last_error_line
from headwater.local.cluster_spec import Slot
from headwater.local.processes import ProcessRef
from headwater_spark.cluster.driver_link import Report, TaskLink


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """One broker as `Cluster.brokers` shows it; None where nothing runs at the moment."""

    broker_id: int
    address: str
    ready: bool
    restarts: int
    """How often it became ready again after its first time."""
    pid: int | None
    host: str | None
    executor_id: str | None
    executor_pid: int | None


@dataclass(slots=True)
class BrokerSlot:
    """Changed only under the manager's lock."""

    slot: Slot
    log_path: Path
    host: str
    one_host: bool
    link: TaskLink | None = None
    task_facts: Report = field(default_factory=dict)
    told: dict[str, Any] | None = None
    process: ProcessRef | None = None
    times_ready: int = 0
    submissions: int = 0
    failure: str = ""
    """Why it never became ready, as soon as that is known."""

    @property
    def group(self) -> str:
        """The Spark job group of its job."""
        return f"headwater-{self.slot.name}"

    def info(self) -> BrokerInfo:
        """A snapshot for callers."""
        return BrokerInfo(
            broker_id=self.slot.broker_id,
            address=f"{self.host}:{self.slot.port}",
            ready=self.told is not None,
            restarts=max(0, self.times_ready - 1),
            pid=self.told.get("pid") if self.told else None,
            host=self.task_facts.get("host"),
            executor_id=self.task_facts.get("executor_id"),
            executor_pid=self.task_facts.get("executor_pid"),
        )

    def up(self, report: Report, link: TaskLink) -> None:
        """A task for this slot has started."""
        self.link = link
        self.task_facts = report
        if not self.one_host:
            self.host = str(report["host"])

    def ready(self, told: dict[str, Any]) -> None:
        """The broker serves."""
        self.told = told
        self.times_ready += 1
        self.failure = ""
        pid = told.get("pid")
        if self.one_host and isinstance(pid, int):
            self.process = ProcessRef.of(self.slot.name, pid)

    def gone(self, code: int) -> None:
        """The broker's process has ended; its task restarts it."""
        self.told = None
        self.process = None
        if self.times_ready == 0:
            words = last_error_line(self.log_path) if self.one_host else f"its host {self.host}"
            self.failure = (
                f"{self.slot.name} ended with {code} before it was ready: {words}"
                f" (log: {self.log_path})"
            )

    def lost(self, link: TaskLink) -> ProcessRef | None:
        """The task is gone, with or without its broker; the process that may still be draining."""
        if self.link is not link:
            return None  # a later task reports already
        self.link = None
        self.told = None
        self.task_facts = {}
        process, self.process = self.process, None
        return process
