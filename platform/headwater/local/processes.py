"""Processes by pid and start time: the kernel reuses a pid, but never both.

Every process of a cluster inherits `HEADWATER_CLUSTER_DIR`, by which it is found when cluster.json
does not list it.
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
    """A process. `started` is its start time in seconds since 1970."""

    name: str
    pid: int
    started: float

    @classmethod
    def of(cls, name: str, pid: int) -> ProcessRef:
        """The process that has this pid now. If there is none, `alive` is False for ever."""
        try:
            return cls(name, pid, psutil.Process(pid).create_time())
        except psutil.Error:
            return cls(name, pid, 0.0)

    def alive(self) -> bool:
        """True while this process runs. A zombie does not run."""
        try:
            process = psutil.Process(self.pid)
            is_same = abs(process.create_time() - self.started) < START_TIME_SLACK_S
            return bool(is_same and process.status() != psutil.STATUS_ZOMBIE)
        except psutil.Error:
            return False

    def send(self, signum: signal.Signals) -> None:
        """Send a signal to the process if it is alive."""
        if self.alive():
            try:
                os.kill(self.pid, signum)
            except ProcessLookupError:
                return


def of_cluster(directory: Path) -> list[ProcessRef]:
    """Every live process of the cluster in `directory`, except this one."""
    found = []
    wanted = str(directory)
    for process in psutil.process_iter():
        try:
            if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
                continue
            if process.environ().get(CLUSTER_DIR_VARIABLE) == wanted:
                found.append(ProcessRef(process.name(), process.pid, process.create_time()))
        except (psutil.Error, OSError):
            continue  # it has ended, or belongs to another user
    return found


def wait_gone(processes: list[ProcessRef], timeout_s: float) -> list[ProcessRef]:
    """Wait until all have ended, at most `timeout_s`; those that are still alive.

    It polls by itself: psutil's wait counts a zombie as alive, and in containers whose process 1
    reaps late every orphan is a zombie for a while.
    """
    left = processes
    for _ in range(max(1, round(timeout_s / POLL_S))):
        left = [process for process in left if process.alive()]
        if not left:
            return []
        time.sleep(POLL_S)
    return [process for process in left if process.alive()]
