"""Processes by identity, never by bare pid: a pid is reused, (pid, start time) is not.

Every process of a cluster inherits `HEADWATER_CLUSTER_DIR`, so that whatever is left of one can be
found even when the file that listed it is gone.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

CLUSTER_DIR_VARIABLE = "HEADWATER_CLUSTER_DIR"
POLL_S = 0.01
START_TIME_SLACK_S = 0.05  # psutil derives the time from clock ticks


@dataclass(frozen=True, slots=True)
class ProcessRef:
    """One process. `started` is its start time in seconds since the epoch."""

    name: str
    pid: int
    started: float

    @classmethod
    def of(cls, name: str, pid: int) -> ProcessRef:
        """The process that has `pid` now; one that is gone already never counts as alive."""
        try:
            return cls(name, pid, psutil.Process(pid).create_time())
        except psutil.Error:
            return cls(name, pid, 0.0)

    def alive(self) -> bool:
        """True while this very process runs (a zombie does not)."""
        try:
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.started) < START_TIME_SLACK_S
            return bool(same and process.status() != psutil.STATUS_ZOMBIE)
        except psutil.Error:
            return False

    def send(self, signum: signal.Signals) -> None:
        """Signal it, if it is still alive."""
        if self.alive():
            try:
                os.kill(self.pid, signum)
            except ProcessLookupError:
                return


def of_cluster(directory: Path) -> list[ProcessRef]:
    """Every living process that was started for the cluster in `directory`, but for ourselves."""
    found = []
    wanted = str(directory)
    for process in psutil.process_iter():
        try:
            if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
                continue
            if process.environ().get(CLUSTER_DIR_VARIABLE) == wanted:
                found.append(ProcessRef(process.name(), process.pid, process.create_time()))
        except (psutil.Error, OSError):
            continue  # gone meanwhile, or another user's
    return found


def wait_gone(processes: list[ProcessRef], timeout_s: float) -> list[ProcessRef]:
    """Those of `processes` that still live after `timeout_s`; returns as soon as none does.

    By our own polls: psutil's wait counts a zombie as alive, and where process 1 reaps lazily
    (containers) every orphan stays one for a while.
    """
    left = processes
    for _ in range(max(1, round(timeout_s / POLL_S))):
        left = [process for process in left if process.alive()]
        if not left:
            return []
        time.sleep(POLL_S)
    return [process for process in left if process.alive()]
